package e2e

import (
	"context"
	"encoding/json"
	"net"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/kernels"
	"github.com/brig-run/brig/engine"
	"github.com/brig-run/brig/tool"
)

// packageHost is the host name of the package index in sandboxes.
const packageHost = "index.brig-test.com"

// withPackages returns an engine on gVisor whose sandboxes can resolve the name of an index. Only
// sandboxes with an egress rule for the index may connect to it.
func withPackages(t *testing.T, x *index, o engine.ToolOptions) (*engine.Engine, context.Context) {
	t.Helper()
	dial := func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, x.Listener.Addr().String())
	}
	return engineWith(t, engine.Options{
		Egress: engine.EgressOptions{Resolver: fixedNames{packageHost: netip.MustParseAddr("93.184.215.14")}, Dial: dial}, Tools: o,
	})
}

// toPackages returns egress rules that allow connections to the index.
func toPackages() brig.Egress { return brig.Egress{Rules: []brig.EgressRule{{Host: packageHost}}} }

// withPackagesAllowed returns tool options that allow the installation of
// packages.
func withPackagesAllowed(t *testing.T) engine.ToolOptions {
	return engine.ToolOptions{
		Layers: &tool.LayerCache{Dir: filepath.Join(t.TempDir(), "layers"), MaxLayer: brig.GiB},
		Index:  tool.Index{PyPI: "http://" + packageHost + "/simple"}, PackageEgress: toPackages(),
	}
}

// cells runs the steps of one notebook, each in a new sandbox.
type cells struct {
	e    *engine.Engine
	ctx  context.Context
	last brig.Step
}

func (c *cells) run(t *testing.T, code string) (result, stderr string, o *brig.Outcome) {
	t.Helper()
	step := c.last
	o, err := c.e.Run(c.ctx, brig.Program{
		Language: brig.Python, Code: code, Step: &step, Egress: toPackages(), Timeout: 2 * time.Minute,
		Env: map[string]string{"PIP_INDEX_URL": "http://" + packageHost + "/simple", "PIP_TRUSTED_HOST": packageHost, "PIP_DISABLE_PIP_VERSION_CHECK": "1"},
	}, brig.IO{})
	if err != nil {
		t.Fatal(err)
	}
	c.last = brig.Step{State: o.Step.State, Count: step.Count + 1, Packages: o.Step.Packages}
	for _, v := range o.Step.Outputs {
		if v.Main {
			result = string(v.Data["text/plain"])
		}
	}
	return result, string(o.Stderr.Head), o
}

const (
	installGreet = "!pip install -q brigtestgreet==1.0"
	hasGreet     = "import importlib.util\nimportlib.util.find_spec('brigtestgreet') is not None"
	greets       = "import brigtestgreet\nbrigtestgreet.VERSION, brigtestgreet.__file__.startswith('/opt/')"
)

// TestStepPackages verifies that packages of a step are available in the next step, unmodified
// even if untrusted code has changed them. They are installed from the index, which is queried
// only once.
//
//suite:part core
func TestStepPackages(t *testing.T) {
	needRoot(t)
	x := newIndex(t)
	e, ctx := withPackages(t, x, withPackagesAllowed(t))
	c := &cells{e: e, ctx: ctx}
	poison := `
import site, os
own = os.path.join(site.getusersitepackages(), "brigtestgreet.py")
assert os.path.exists(own)
open(own, "w").write("VERSION = 'planted'\n")
open(os.path.join(site.getusersitepackages(), "planted.py"), "w").write("")
open(os.path.join(site.getusersitepackages(), "planted.pth"), "w").write("import os; os.environ['PLANTED'] = '1'\n")
import brigtestgreet
brigtestgreet.VERSION`
	if got, stderr, _ := c.run(t, installGreet+poison); got != `"'planted'"` {
		t.Fatalf("the control: %s %s", got, stderr)
	}
	if got, stderr, o := c.run(t, greets); got != `"('1.0', True)"` || !reflect.DeepEqual(o.Step.Packages, []string{"brigtestgreet==1.0"}) {
		t.Errorf("%s %s %q", got, stderr, o.Step.Packages)
	}
	got, stderr, _ := c.run(t, "import os, importlib.util as u\nu.find_spec('planted') is None, 'PLANTED' in os.environ, os.access(brigtestgreet.__file__, os.W_OK)")
	if got != `"(True, False, False)"` {
		t.Errorf("something of the first step is left: %s %s", got, stderr)
	}
	requests := x.requests.Load()
	if got, stderr, _ := c.run(t, "brigtestgreet.VERSION"); got != `"'1.0'"` || x.requests.Load() != requests {
		t.Errorf("%s %s, and the index was asked %d times more", got, stderr, x.requests.Load()-requests)
	}
	// The packages must not be available in another notebook.
	if got, stderr, _ := (&cells{e: e, ctx: ctx}).run(t, hasGreet); got != `"False"` {
		t.Errorf("%s %s", got, stderr)
	}
	eventuallyGone(t, e, ctx, 0)
}

// TestStepPackagesForged verifies that the host installs only packages that the
// code requests, even though untrusted code in a step can send arbitrary
// messages to the host.
//
//suite:part core
func TestStepPackagesForged(t *testing.T) {
	needRoot(t)
	x := newIndex(t)
	e, ctx := withPackages(t, x, withPackagesAllowed(t))
	c := &cells{e: e, ctx: ctx}
	const forge = `
import gc
for o in gc.get_objects():
    if type(o).__name__ == "Channel":
        o.send({"type": "installed", "packages": ["brigtestgreet==1.0", "--index-url=http://x", "/tmp/x"]})
        print("said")`
	_, stderr, o := c.run(t, forge)
	if string(o.Stdout.Head) != "said\n" || len(o.Step.Packages) > 0 {
		t.Fatalf("it says %s %s, and is believed: %q", o.Stdout.Head, stderr, o.Step.Packages)
	}
	if got, stderr, _ := c.run(t, hasGreet); got != `"False"` || x.requests.Load() > 0 {
		t.Errorf("it is there: %s %s, and the index was asked %d times", got, stderr, x.requests.Load())
	}
	// The control: the code requests the package on a separate line.
	c.run(t, "'''\n!pip install brigtestgreet==1.0\n'''\n"+strings.TrimPrefix(forge, "\n"))
	if got, stderr, _ := c.run(t, hasGreet); got != `"True"` {
		t.Errorf("the forgery would not have worked in any case: %s %s", got, stderr)
	}
	for _, r := range []string{"--index-url=http://x", "/x.whl", "git+https://x", "a b", ""} {
		_, err := e.Run(ctx, brig.Program{Language: brig.Python, Code: "1", Step: &brig.Step{Packages: []string{r}}}, brig.IO{})
		if e := brig.AsError(err); err == nil || e.Kind != brig.InvalidArgument || e.Field != "step.packages[0]" {
			t.Errorf("%q: %v", r, err)
		}
	}
}

// TestStepPackagesMissing verifies that a step runs without a package, and reports its absence,
// if the operator does not allow packages or the index lacks the package.
//
//suite:part core full
func TestStepPackagesMissing(t *testing.T) {
	needRoot(t)
	x := newIndex(t)
	e, ctx := withPackages(t, x, engine.ToolOptions{})
	c := &cells{e: e, ctx: ctx}
	_, stderr, o := c.run(t, installGreet)
	if !strings.Contains(stderr, "brig: pip install -q brigtestgreet==1.0 is not carried to the next step: ") || !strings.Contains(stderr, "tools.packages") || len(o.Step.Packages) > 0 {
		t.Errorf("%s %q", stderr, o.Step.Packages)
	}
	if got, stderr, _ := c.run(t, hasGreet); got != `"False"` || stderr != "" {
		t.Errorf("%s %s", got, stderr)
	}
	e, ctx = withPackages(t, x, withPackagesAllowed(t))
	c = &cells{e: e, ctx: ctx, last: brig.Step{Packages: []string{"brigtestgreet==9.9"}}}
	got, stderr, o := c.run(t, hasGreet)
	if got != `"False"` || !strings.Contains(stderr, "brig: packages were not carried into this step: ") || !strings.Contains(stderr, "brigtestgreet==9.9") || len(o.Step.Packages) != 1 {
		t.Errorf("%s %s %q", got, stderr, o.Step.Packages)
	}
}

// TestSmolagentsPackages verifies that smolagents' executor can install packages in kernels of
// both specs, and import them in later steps.
//
//suite:part clients full
func TestSmolagentsPackages(t *testing.T) {
	needRoot(t)
	x := newIndex(t)
	e, _ := withPackages(t, x, withPackagesAllowed(t))
	addKeys(t, e.Store)
	door := kernels.New(kernels.Options{Service: e, Keys: e, Egress: toPackages(), Timeout: 2 * time.Minute, LimitRange: brig.DefaultLimitRange()})
	t.Cleanup(door.Close)
	srv := httptest.NewServer(door)
	t.Cleanup(srv.Close)
	libraries := cached(t, "pip", strings.Join(smolagents, " "), func(dir string) *exec.Cmd {
		return exec.CommandContext(t.Context(), "python3", append([]string{"-m", "pip", "install", "-q", "--target", dir}, smolagents...)...)
	})
	script, err := filepath.Abs("smolagents/packages.py")
	if err != nil {
		t.Fatal(err)
	}
	printed := map[string][][]string{}
	for _, spec := range []string{"python3", "python3-ephemeral"} {
		outcomes := filepath.Join(t.TempDir(), "outcomes.json")
		cmd := exec.CommandContext(t.Context(), "python3", "-B", script)
		cmd.Env = []string{
			"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "PYTHONPATH=" + libraries, "BRIG_URL=" + srv.URL, "BRIG_KEY=" + keyOfAcme,
			"EXECUTOR=" + spec, "OUTCOMES=" + outcomes, "INDEX=http://" + packageHost + "/simple", "INDEX_HOST=" + packageHost,
		}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", spec, err, out)
		}
		b, err := os.ReadFile(outcomes)
		if err != nil {
			t.Fatal(err)
		}
		var list [][]string
		if err := json.Unmarshal(b, &list); err != nil {
			t.Fatal(err)
		}
		printed[spec] = list
	}
	one, each := printed["python3"], printed["python3-ephemeral"]
	if len(one) != len(each) || len(one) < 11 {
		t.Fatalf("%d steps in one sandbox, %d in one each", len(one), len(each))
	}
	for i, want := range []string{"'1.0'", "'1.0'", "None", "'1.01.0'", "'1.0'", `'1.0\n'`, "", "'1.0'", "None", `'2.0\n'`, ""} {
		if !reflect.DeepEqual(one[i], each[i]) || want != "" && one[i][1] != want {
			t.Errorf("%q\nin one sandbox %q\nin one each %q\nwant %q", one[i][0], one[i][1], each[i][1], want)
		}
	}
}
