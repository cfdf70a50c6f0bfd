package gvisor

import (
	"bytes"
	"context"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/brig-run/brig"
)

// build identifies the programs and the CPU features on which a save depends.
type build struct {
	Engine, Agent string // digests of the programs
	Shim          string `json:",omitempty"` // empty in saves of earlier versions
	GVisor        string // version
	CPU           string // CPU features
}

// programs are the paths of the programs of one build.
type programs struct{ Engine, Shim, Agent string }

// programs returns the programs with which this provider starts sandboxes.
func (p *Provider) programs() programs { return programs{p.Engine, p.Shim, p.Agent} }

// programs returns the programs of a sandbox.
func (o *order) programs() programs { return programs{o.Engine, o.Shim, o.Agent} }

// buildOf returns the build that consists of the given programs. It reads the programs
// lazily, for the first save or restore that needs them.
func (p *Provider) buildOf(of programs) (b build, err error) {
	engine, err1 := p.contents.of(of.Engine)
	agent, err2 := p.contents.of(of.Agent)
	b.Engine, b.Agent, b.GVisor = engine.digest, agent.digest, engine.gvisor
	var err3, err4 error
	if of.Shim != "" {
		var shim content
		shim, err3 = p.contents.of(of.Shim)
		b.Shim = shim.digest
	}
	b.CPU, err4 = cpuFeatures()
	return b, errors.Join(err1, err2, err3, err4)
}

// savedBuild returns the build of a running sandbox, which an earlier version of
// Brig may have started.
func (i *instance) savedBuild(ctx context.Context) (build, error) {
	of := i.order.programs()
	if of.Engine != self && of.Shim != "" {
		return i.p.buildOf(of)
	}
	// The paths refer to another server's own binary, or were not recorded.
	pid, err := i.l.sentry(ctx)
	if err != nil {
		return build{}, err
	}
	shim, err := parent(pid)
	if err != nil {
		return build{}, err
	}
	if of.Shim = fmt.Sprintf("/proc/%d/exe", shim); of.Engine == self {
		of.Engine = fmt.Sprintf("/proc/%d/exe", pid)
	}
	return i.p.buildOf(of)
}

// parent returns the parent process ID of a process.
func parent(pid int) (int, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, fmt.Errorf("find the parent of a process: %w", err)
	}
	// The name, in parentheses, may contain any character.
	fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if len(fields) < 2 {
		return 0, fmt.Errorf("process %d has no parent", pid)
	}
	return strconv.Atoi(fields[1]) //nolint:wrapcheck // the kernel's own number
}

// programsFor returns the programs that can restore a save: the current programs if they
// created the save, and otherwise matching programs from the directory of programs, if
// there are any.
func (p *Provider) programsFor(saved build) (programs, error) {
	of := p.programs()
	current, err := p.buildOf(of)
	if err != nil || saved.Engine == current.Engine && saved.Agent == current.Agent {
		return of, err
	}
	byDigest, err := p.keptPrograms()
	if err != nil {
		return of, err
	}
	engine, agent := byDigest[saved.Engine], byDigest[saved.Agent]
	if engine == "" || agent == "" {
		return of, nil // firstDifference reports the mismatch later
	}
	of.Engine, of.Agent = engine, agent
	if shim := byDigest[saved.Shim]; shim != "" {
		of.Shim = shim // otherwise the current shim works, too
	}
	return of, nil
}

// keptPrograms maps the digests of the files in the directory of programs to their paths. It
// skips files that cannot be read.
func (p *Provider) keptPrograms() (map[string]string, error) {
	files, err := p.programFiles()
	out := map[string]string{}
	for _, file := range files {
		if c, err := p.contents.of(file); err == nil {
			out[c.digest] = file
		}
	}
	return out, err
}

// programFiles returns the paths of the files in the directory of programs.
func (p *Provider) programFiles() (out []string, err error) {
	if p.Programs == "" {
		return nil, nil
	}
	entries, err := os.ReadDir(p.Programs)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list programs: %w", err)
	}
	for _, e := range entries {
		if e.Type().IsRegular() && strings.HasPrefix(e.Name(), "brig-") {
			out = append(out, filepath.Join(p.Programs, e.Name()))
		}
	}
	return out, nil
}

// programAge is the minimum age at which an unused program is removed. Another
// version of Brig may be about to use a newer one.
const programAge = 24 * time.Hour

// sweepPrograms removes the programs of earlier versions that no sandbox and no save
// needs, and returns their number. Every server or command updates the modification times
// of its programs when it starts.
func (p *Provider) sweepPrograms() (n int, err error) {
	files, err := p.programFiles()
	if err != nil {
		return 0, err
	}
	old := slices.DeleteFunc(files, func(file string) bool {
		st, err := os.Stat(file)
		return err != nil || time.Since(st.ModTime()) < programAge || slices.Contains([]string{p.Engine, p.Shim, p.Agent}, file)
	})
	if len(old) == 0 {
		return 0, nil
	}
	needed, err := p.neededPrograms()
	if err != nil {
		p.Log.Warn("failed to find the programs that sandboxes and saves need; all are kept", "err", err)
		return 0, nil
	}
	var errs []error
	for _, file := range old {
		name := filepath.Base(file)
		if needed.names[name] || needed.shims && strings.HasPrefix(name, shimFiles) {
			continue
		}
		c, err := p.contents.of(file)
		if err == nil && !needed.digests[c.digest] {
			if err = os.Remove(file); err == nil {
				n++
			}
		}
		errs = append(errs, err)
	}
	return n, errors.Join(errs...)
}

// shimFiles is the prefix of the names of shims in the directory of programs.
const shimFiles = "brig-shim"

// neededPrograms are the programs of the sandboxes and saves of a data folder. Only base
// names are compared, because different paths may lead to the same directory.
type neededPrograms struct {
	names, digests map[string]bool
	shims          bool // a sandbox has a shim with an unknown name
}

func (p *Provider) neededPrograms() (out neededPrograms, err error) {
	out = neededPrograms{names: map[string]bool{}, digests: map[string]bool{}}
	folders, err := os.ReadDir(sandboxesDir(p.DataDir))
	if err != nil {
		return out, fmt.Errorf("list sandboxes: %w", err)
	}
	for _, e := range folders {
		var o order
		ok, err := p.layout(brig.ID(e.Name())).readJSON(orderFile, &o)
		if err != nil {
			return out, err
		}
		if !ok {
			continue // the sandbox is not running
		}
		for _, file := range []string{o.Engine, o.Shim, o.Agent} {
			out.names[filepath.Base(file)] = true
		}
		out.shims = out.shims || o.Shim == ""
	}
	saves, err := os.ReadDir(filepath.Join(p.DataDir, savesDir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return out, fmt.Errorf("list saves: %w", err)
	}
	for _, e := range saves {
		m, err := p.readManifest(brig.SaveID(e.Name()))
		if brig.KindOf(err) == brig.NotFound || !brig.ValidName(e.Name()) {
			continue // the save is incomplete
		}
		if err != nil {
			return out, err
		}
		for _, digest := range []string{m.Build.Engine, m.Build.Shim, m.Build.Agent} {
			out.digests[digest] = true
		}
	}
	return out, nil
}

// content identifies the content of a program in the manifest of a save.
type content struct {
	digest string
	gvisor string // the gVisor version linked into the program
}

// contents caches the contents of programs.
type contents struct {
	mu     sync.Mutex // guards the field below, and serializes reads
	byFile map[fileID]content
}

// fileID identifies an unchanged file.
type fileID struct {
	dev, ino    uint64
	size, mtime int64
}

// of returns the content of the program in a file.
func (cs *contents) of(file string) (content, error) {
	f, err := os.Open(file)
	if err != nil {
		return content{}, fmt.Errorf("open program: %w", err)
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return content{}, fmt.Errorf("look at %s: %w", file, err)
	}
	id := fileID{st.Dev, st.Ino, st.Size, st.Mtim.Nano()}
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if c, ok := cs.byFile[id]; ok {
		return c, nil
	}
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return content{}, fmt.Errorf("read %s: %w", file, err)
	}
	c := content{hex.EncodeToString(h.Sum(nil)), "unknown"}
	if info, err := buildinfo.Read(f); err == nil {
		for _, d := range info.Deps {
			if d.Path == "gvisor.dev/gvisor" {
				c.gvisor = d.Version
			}
		}
	}
	if cs.byFile == nil {
		cs.byFile = map[fileID]content{}
	}
	cs.byFile[id] = c
	return c, nil
}

// cpuFeatures returns the sorted features of this machine's CPUs.
var cpuFeatures = sync.OnceValues(readFeatures)

func readFeatures() (string, error) {
	b, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return "", fmt.Errorf("read the processor's features: %w", err)
	}
	for line := range strings.Lines(string(b)) {
		name, value, _ := strings.Cut(line, ":")
		if name = strings.TrimSpace(name); name == "flags" || name == "Features" {
			features := strings.Fields(value)
			slices.Sort(features)
			return strings.Join(features, " "), nil
		}
	}
	return "", errors.New("the processor's features are not in /proc/cpuinfo")
}

// difference lists a few of the features that only one of two CPUs has.
func difference(saved, current string) string {
	a, b := strings.Fields(saved), strings.Fields(current)
	var out []string
	for _, f := range a {
		if !slices.Contains(b, f) && len(out) < 4 {
			out = append(out, "-"+f)
		}
	}
	for _, f := range b {
		if !slices.Contains(a, f) && len(out) < 4 {
			out = append(out, "+"+f)
		}
	}
	return " (" + strings.Join(out, " ") + ")"
}
