package prefilter

import (
	"bytes"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/seccomp"
	"gvisor.dev/gvisor/pkg/seccomp/precompiledseccomp"
	"gvisor.dev/gvisor/pkg/sentry/platform"
	_ "gvisor.dev/gvisor/pkg/sentry/platform/platforms"
	sentry "gvisor.dev/gvisor/runsc/boot/filter"
	sentryconfig "gvisor.dev/gvisor/runsc/boot/filter/config"
	gofer "gvisor.dev/gvisor/runsc/fsgofer/filter"
	goferconfig "gvisor.dev/gvisor/runsc/fsgofer/filter/config"

	"github.com/brig-run/brig/internal/testenv"
)

// file holds the programs. To regenerate it, set BRIG_UPDATE=1 and run
// CGO_ENABLED=0 go test -tags grpcnotrace.
const file = "programs_amd64.bin"

// runWithPlainBinary reports whether this test binary is built like gVisor's processes. The race
// detector and cgo allow additional system calls. If the binary is built differently, plain runs a
// test binary that is built like them.
func runWithPlainBinary(t *testing.T) bool {
	t.Helper()
	if runtime.GOARCH != "amd64" {
		t.Skip("there are no programs for " + runtime.GOARCH)
	}
	if !withCgo {
		return true
	}
	if out, err := exec.Command(testenv.Bin(t, "test/prefilter.test"), "-test.run=^"+t.Name()+"$").CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	return false
}

// byName is the systrap platform with variables in place of its values and the
// process ID. Otherwise, gVisor would compile the ID of the compiling process
// into one of systrap's rules.
type byName struct {
	platform.SeccompInfo
	vars precompiledseccomp.Values
}

func (b byName) Variables() precompiledseccomp.Values {
	out := b.SeccompInfo.Variables()
	for name := range out {
		out[name] = b.vars[name]
	}
	return out
}

func (b byName) SyscallFilters(vars precompiledseccomp.Values) seccomp.SyscallRules {
	rules := b.SeccompInfo.SyscallFilters(vars)
	rules.Remove(unix.SYS_RT_TGSIGQUEUEINFO)
	rules.Set(unix.SYS_RT_TGSIGQUEUEINFO, seccomp.PerArg{
		seccomp.EqualTo(b.vars.GetUint64("self_pid")), seccomp.AnyValue{}, seccomp.EqualTo(unix.SIGKILL),
	})
	return rules
}

// sentryOptions returns the options of a sentry that the provider starts.
func sentryOptions(t *testing.T) sentryconfig.Options {
	t.Helper()
	p, err := platform.Lookup("systrap")
	if err != nil {
		t.Fatal(err)
	}
	return sentryconfig.Options{Platform: p.PrecompiledSeccompInfo()[0], HostFilesystem: true, ControllerFD: 77}
}

// goferOptions returns the options of a gofer that the provider starts. They
// depend on the image's binds.
func goferOptions() []goferconfig.Options {
	return []goferconfig.Options{{DirectFS: true}, {DirectFS: true, LisafsNeeded: true}}
}

func program(rules, deny seccomp.SyscallRules, o seccomp.ProgramOptions) *seccomp.Program {
	return &seccomp.Program{Options: o, RuleSets: []seccomp.RuleSet{{Rules: deny.Copy()}, {Rules: rules.Copy(), Action: seccomp.Allow}}}
}

// compile compiles the programs that the provider needs with gVisor's own
// functions.
func compile(t *testing.T) set {
	t.Helper()
	s := set{version: linkedVersion(t), kinds: map[string]map[string]precompiledseccomp.Program{kindSentry: {}, kindGofer: {}}}
	o := sentryOptions(t)
	p, err := precompiledseccomp.Precompile(o.ConfigKey(), slices.Collect(maps.Keys(o.Vars())), func(vars precompiledseccomp.Values) *seccomp.Program {
		o := sentryOptions(t)
		o.Platform, o.ControllerFD = byName{o.Platform, vars}, vars["controller_fd"]
		rules, deny := sentryconfig.Rules(o)
		return program(rules, deny, sentryconfig.SeccompOptions(o))
	})
	if err != nil {
		t.Fatal(err)
	}
	s.kinds[kindSentry][p.Name] = p
	all, err := goferconfig.PrecompiledPrograms()
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range goferOptions() {
		for _, p := range all {
			if p.Name == o.ConfigKey() {
				s.kinds[kindGofer][p.Name] = p
			}
		}
	}
	return s
}

// linkedVersion returns the gVisor version in go.mod, because a test binary has no
// build information about it.
func linkedVersion(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`(?m)^\s*(?:require )?gvisor\.dev/gvisor (\S+)`).FindSubmatch(b)
	if m == nil {
		t.Fatal("go.mod does not name gVisor")
	}
	return string(m[1])
}

// TestProgramsAreCurrent compiles gVisor's current rules and compares the
// programs with the file.
func TestProgramsAreCurrent(t *testing.T) {
	if !runWithPlainBinary(t) {
		return
	}
	want := compile(t).encode()
	if os.Getenv("BRIG_UPDATE") != "" {
		if err := os.WriteFile(file, want, 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if !bytes.Equal(programs, want) {
		t.Errorf("%s is not what gVisor's rules give now: BRIG_UPDATE=1 CGO_ENABLED=0 go test -tags grpcnotrace ./internal/prefilter", file)
	}
}

// TestProgramsMatchGVisor checks that a program, with its values filled in,
// is identical to the program that gVisor would compile in this process.
func TestProgramsMatchGVisor(t *testing.T) {
	if !runWithPlainBinary(t) {
		return
	}
	s, err := decode(programs)
	if err != nil {
		t.Fatal(err)
	}
	if s.version != linkedVersion(t) {
		t.Errorf("the programs are for gVisor %s, linked is %s", s.version, linkedVersion(t))
	}
	check := func(p precompiledseccomp.Program, found bool, vars precompiledseccomp.Values, own *seccomp.Program) {
		t.Helper()
		if !found {
			t.Error("gVisor would not find its program")
			return
		}
		got, err := p.RenderInstructions(vars)
		if err != nil {
			t.Fatal(err)
		}
		want, _, err := own.Build()
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %d instructions, gVisor compiles %d, and not the same", p.Name, len(got), len(want))
		}
	}
	so := sentryOptions(t)
	rules, deny := sentryconfig.Rules(so)
	p, ok := s.kinds[kindSentry][so.ConfigKey()]
	check(p, ok, so.Vars(), program(rules, deny, sentryconfig.SeccompOptions(so)))
	for _, o := range goferOptions() {
		rules, deny := goferconfig.Rules(o)
		p, ok := s.kinds[kindGofer][o.ConfigKey()]
		check(p, ok, o.Vars(), program(rules, deny, seccomp.ProgramOptions{}))
	}
}

// TestDecodeIsStrict checks that decode rejects a damaged file, regardless of
// the position of the damage.
func TestDecodeIsStrict(t *testing.T) {
	for n := range len(programs) {
		if _, err := decode(programs[:n]); err == nil {
			t.Fatalf("decoded the first %d of %d bytes", n, len(programs))
		}
	}
	if _, err := decode(append(slices.Clone(programs), 0)); err == nil {
		t.Error("decoded a file with more than it should hold")
	}
}

// TestFillInstallsPrograms checks that gVisor's lookups find the installed programs.
func TestFillInstallsPrograms(t *testing.T) {
	s, err := decode(programs)
	if err != nil {
		t.Fatal(err)
	}
	copyPrograms(s)
	for key := range s.kinds[kindSentry] {
		if _, ok := sentry.GetPrecompiled(key); !ok {
			t.Errorf("the sentry does not find %q", key)
		}
	}
	for key := range s.kinds[kindGofer] {
		if _, ok := gofer.GetPrecompiled(key); !ok {
			t.Errorf("the gofer does not find %q", key)
		}
	}
}
