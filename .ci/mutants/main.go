// Command mutants puts small faults into the code that protects, and says which
// tests notice: those of the package, make test, only make test-all, or none.
// The Makefile calls it. It keeps what it found in .ci/mutants.json, and writes
// docs/mutants.md from that.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/brig-run/brig/internal/mutants"
	"github.com/brig-run/brig/internal/suite"
)

// target is code that is changed, and the packages whose tests are asked first.
type target struct {
	what, dir string
	files     string // a pattern; empty for all
	packages  []string
}

var targets = []target{
	{"engine: gate, quota, life cycle", "engine", `^(account|allow|capacity|enforce|gate|keys|lifecycle|overdue|rate|stop|tenants|usage)\.go$`, []string{"./engine"}},
	{"egress", "egress", "", []string{"./egress"}},
	{"authentication: door", "door", `^(auth|body|decode|guard|keyring|session|strangers|uses)\.go$`, []string{"./door", "./api/rest"}},
	{"authentication: sign-in", "signin", "", []string{"./signin"}},
	{"audit", "audit", "", []string{"./audit", "./engine"}},
	{"workspace", "workspace", "", []string{"./workspace"}},
}

const (
	recordFile = ".ci/mutants.json"
	tableFile  = "docs/mutants.md"
)

func main() {
	n := flag.Int("n", 25, "how many mutants of each `target`; 0 tries no new ones")
	seed := flag.Uint64("seed", 1, "chooses the mutants")
	limit := flag.Duration("for", time.Hour, "how long to try at most; what is left is tried by the next run")
	gremlins := flag.String("gremlins", "", "the program that lists mutants")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	r := &run{end: time.Now().Add(*limit), gremlins: *gremlins}
	if err := r.do(ctx, *n, *seed); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

type run struct {
	end      time.Time
	gremlins string
	root     string
	tree     *suite.Tree
	tests    []suite.Test
	times    suite.Times
	list     []mutants.Mutant

	mu sync.Mutex // guards list and its file
}

func (r *run) do(ctx context.Context, n int, seed uint64) (err error) {
	if r.root, err = os.Getwd(); err != nil {
		return err
	}
	if r.tree, err = suite.OpenTree("."); err != nil {
		return err
	}
	if r.tests, err = suite.Discover("."); err != nil {
		return err
	}
	r.tests = slices.DeleteFunc(r.tests, func(t suite.Test) bool { return t.Part == "race" })
	r.times = suite.ReadTimes("bin/test-times.json", suite.Green{})
	b, err := os.ReadFile(recordFile)
	if err == nil {
		err = json.Unmarshal(b, &r.list)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if n > 0 {
		if err := r.choose(ctx, n, seed); err != nil {
			return err
		}
	}
	r.packages(ctx)
	for _, stage := range []mutants.Stage{mutants.Small, mutants.Full} {
		if err := r.endToEnd(ctx, stage); err != nil {
			return errors.Join(err, r.keep())
		}
	}
	return r.keep()
}

// choose lists the mutants of all targets and takes some of each.
func (r *run) choose(ctx context.Context, n int, seed uint64) error {
	known := map[string]mutants.Mutant{}
	for _, m := range r.list {
		known[m.Key()] = m
	}
	r.list = nil
	for _, t := range targets {
		all, err := r.places(ctx, t)
		if err != nil {
			return fmt.Errorf("%s: %w", t.dir, err)
		}
		for _, m := range mutants.Sample(all, n, seed) {
			if old := known[m.Key()]; old.From == m.From {
				m = old
			}
			r.list = append(r.list, m)
		}
		fmt.Printf("%s: %d of %d mutants\n", t.what, min(n, len(all)), len(all))
	}
	return r.keep()
}

// places lists the mutants of a target. It finds, and makes nothing.
func (r *run) places(ctx context.Context, t target) ([]mutants.Mutant, error) {
	dir, err := os.MkdirTemp("", "brig-mutants-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	out := filepath.Join(dir, "list.json")
	args := append([]string{"unleash", "--silent", "--dry-run", "--tags", "grpcnotrace", "--output", out, "--invert-logical", "--invert-loopctrl"}, "./"+t.dir)
	cmd := exec.CommandContext(ctx, r.gremlins, args...)
	if text, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w: %s", err, text)
	}
	b, err := os.ReadFile(out)
	if err != nil {
		return nil, err
	}
	all, err := mutants.Parse(b, r.root, t.dir)
	files := regexp.MustCompile(cmp.Or(t.files, "."))
	return slices.DeleteFunc(all, func(m mutants.Mutant) bool {
		rel := strings.TrimPrefix(m.File, t.dir+"/")
		return !files.MatchString(rel) || strings.Contains(rel, "/")
	}), err
}

// targetOf returns the target that a mutant belongs to.
func targetOf(m *mutants.Mutant) target {
	i := slices.IndexFunc(targets, func(t target) bool { return strings.HasPrefix(m.File, t.dir+"/") })
	return targets[max(0, i)]
}

// packages tries the mutants that nothing has tried, each with the tests of its
// packages.
func (r *run) packages(ctx context.Context) {
	next := make(chan *mutants.Mutant)
	var work sync.WaitGroup
	for range runtime.NumCPU() {
		work.Go(func() {
			for m := range next {
				stage, by := r.try(ctx, m)
				if ctx.Err() == nil {
					r.decide(m, stage, by)
				}
			}
		})
	}
	for i := range r.list {
		if r.list[i].Killed == mutants.Untried && ctx.Err() == nil && time.Now().Before(r.end) {
			next <- &r.list[i]
		}
	}
	close(next)
	work.Wait()
}

var failed = regexp.MustCompile(`(?m)^--- FAIL: (\S+)`)

// try runs the tests of a mutant's packages.
func (r *run) try(ctx context.Context, m *mutants.Mutant) (mutants.Stage, string) {
	dir, err := os.MkdirTemp("", "brig-mutant-")
	if err != nil {
		return mutants.Untried, err.Error()
	}
	defer os.RemoveAll(dir)
	overlay, err := mutants.Overlay(r.root, dir, []mutants.Mutant{*m})
	if err != nil {
		return mutants.Untried, err.Error()
	}
	flags := []string{"-overlay", overlay, "-trimpath", "-tags", "grpcnotrace"}
	t := targetOf(m)
	if _, err := r.goRun(ctx, append(append([]string{"build"}, flags...), "./"+t.dir)...); err != nil {
		return mutants.Invalid, ""
	}
	args := append(append([]string{"test"}, flags...), "-failfast", "-vet=off", "-timeout", "3m")
	out, err := r.goRun(ctx, append(args, t.packages...)...)
	if err == nil {
		return mutants.Nothing, "" // so far
	}
	if f := failed.FindStringSubmatch(out); f != nil {
		return mutants.Packages, f[1]
	}
	return mutants.Packages, "panic or timeout"
}

func (r *run) goRun(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "BRIG_BIN_DIR="+r.tree.Bin)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// decide keeps what became of a mutant.
func (r *run) decide(m *mutants.Mutant, stage mutants.Stage, by string) {
	r.mu.Lock()
	m.Killed, m.By = stage, by
	r.mu.Unlock()
	fmt.Printf("%-16s %s %s\n", cmp.Or(stage, "not tried"), m, by)
	if err := r.keep(); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
	}
}

// keep writes the record, and the table.
func (r *run) keep() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	b, err := json.MarshalIndent(r.list, "", "\t")
	if err != nil {
		return err
	}
	if err := os.WriteFile(recordFile, append(b, '\n'), 0o644); err != nil {
		return err
	}
	return os.WriteFile(tableFile, []byte(table(r.list)), 0o644)
}
