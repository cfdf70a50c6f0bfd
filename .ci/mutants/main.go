// Command mutants injects small faults into security-relevant code and reports which tests detect
// them: the package's tests, make test, only make test-all, or none. The Makefile calls it. It
// records the results in .ci/mutants.json, and generates docs/mutants.md from them.
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

// target is a directory of code to mutate, with the packages whose tests run
// first.
type target struct {
	what, dir string
	files     string // a file name pattern; empty for all files
	packages  []string
}

var targets = []target{
	{"engine: capacity", "engine/capacity", "", []string{"./engine/capacity", "./engine"}},
	{"engine: quota", "engine/quota", "", []string{"./engine/quota", "./engine"}},
	{"engine: gate, life cycle", "engine", `^(account|enforce|gate|keys|lifecycle|overdue|stop|tenants|usage)\.go$`, []string{"./engine"}},
	{"egress", "egress", "", []string{"./egress"}},
	{"authentication: httpapi", "api/httpapi", `^(auth|body|decode|guard|keyring|session|strangers|uses)\.go$`, []string{"./api/httpapi", "./api/rest"}},
	{"authentication: sign-in", "signin", "", []string{"./signin"}},
	{"audit", "audit", "", []string{"./audit", "./engine"}},
	{"workspace", "workspace", "", []string{"./workspace"}},
}

const (
	recordFile = ".ci/mutants.json"
	tableFile  = "docs/mutants.md"
)

func main() {
	n := flag.Int("n", 25, "how many mutants of each target, as a `number`; 0 continues with the recorded ones")
	seed := flag.Uint64("seed", 1, "chooses the mutants")
	limit := flag.Duration("for", time.Hour, "ends after this time; the next run continues")
	gremlins := flag.String("gremlins", "", "the program that lists places for mutants")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, *limit)
	defer cancel()
	r := &run{gremlins: *gremlins}
	err := r.do(ctx, *n, *seed)
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		fmt.Println("The time is over; make mutants N=0 continues.")
		err = nil
	}
	if err = errors.Join(err, r.keep()); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

type run struct {
	gremlins string
	root     string
	tree     *suite.Tree
	tests    []suite.Test
	times    suite.Times

	mu   sync.Mutex // guards list and its files
	list []mutants.Mutant
}

func (r *run) do(ctx context.Context, n int, seed uint64) (err error) {
	if r.root, err = os.Getwd(); err != nil {
		return err
	}
	if r.tree, err = suite.OpenTree("."); err != nil {
		return err
	}
	if err := r.load(); err != nil {
		return err
	}
	if n > 0 {
		if err := r.choose(ctx, n, seed); err != nil {
			return err
		}
	}
	if err := r.packages(ctx); err != nil {
		return err
	}
	for _, stage := range []mutants.Stage{mutants.Small, mutants.Full} {
		if err := r.endToEnd(ctx, stage); err != nil {
			return err
		}
	}
	return nil
}

// load loads the tests, without the quarantined ones, and the record.
func (r *run) load() (err error) {
	if r.tests, _, _, err = suite.Tests("."); err != nil {
		return err
	}
	r.tests = slices.DeleteFunc(r.tests, func(t suite.Test) bool { return t.Part == "race" })
	r.times = suite.ReadTimes("bin/test-times.json", suite.PassRecords{})
	b, err := os.ReadFile(recordFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = json.Unmarshal(b, &r.list)
	}
	r.list = slices.DeleteFunc(r.list, func(m mutants.Mutant) bool {
		stale := !m.Applies(r.root)
		if stale && m.Why == "" {
			fmt.Printf("forgotten, since the source has changed: %s\n", &m)
		}
		return stale && m.Why == ""
	})
	return err
}

// choose lists the mutants of all targets. It selects a sample of each target,
// and every mutant with a recorded reason to survive.
func (r *run) choose(ctx context.Context, n int, seed uint64) error {
	known := r.list
	r.list = nil
	for _, t := range targets {
		all, err := r.places(ctx, t)
		if err != nil {
			r.list = known
			return fmt.Errorf("%s: %w", t.dir, err)
		}
		sample := mutants.Sample(all, n, seed)
		for _, m := range all {
			i := slices.IndexFunc(known, func(o mutants.Mutant) bool { return o.Same(&m) })
			switch {
			case i >= 0 && (known[i].Why != "" || slices.Contains(sample, m)):
				old := known[i]
				old.Line = m.Line
				r.list = append(r.list, old)
			case slices.Contains(sample, m):
				r.list = append(r.list, m)
			}
		}
		fmt.Printf("%s: %d of %d mutants\n", t.what, len(sample), len(all))
	}
	return r.keep()
}

// places lists the mutants of a target. The program gremlins runs the target's
// tests once to collect coverage.
func (r *run) places(ctx context.Context, t target) ([]mutants.Mutant, error) {
	dir, err := os.MkdirTemp("", "brig-mutants-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	out := filepath.Join(dir, "list.json")
	cmd := exec.CommandContext(ctx, r.gremlins, "unleash", "--silent", "--dry-run", "--tags", "grpcnotrace", "--output", out, "--invert-logical", "--invert-loopctrl", "./"+t.dir)
	cmd.Env = r.env()
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

// targetOf returns the target of a mutant.
func targetOf(m *mutants.Mutant) target {
	i := slices.IndexFunc(targets, func(t target) bool { return strings.HasPrefix(m.File, t.dir+"/") })
	return targets[max(0, i)]
}

// packages tests each new mutant with the tests of its target's packages.
func (r *run) packages(ctx context.Context) error {
	for _, t := range targets { // the tests must pass without a mutant
		if out, err := r.goRun(ctx, append([]string{"test", "-trimpath", "-tags", "grpcnotrace"}, t.packages...)...); err != nil {
			return fmt.Errorf("the tests of %s fail without a mutant: %w: %s", t.what, err, out)
		}
	}
	next := make(chan *mutants.Mutant)
	var work sync.WaitGroup
	for range runtime.NumCPU() {
		work.Go(func() {
			for m := range next {
				killed, by, err := r.try(ctx, m)
				if ctx.Err() != nil {
					continue
				}
				if err != nil {
					fmt.Fprintf(os.Stderr, "mutants: %s: %v\n", m, err)
					continue
				}
				if killed != "" || m.Survived == "" { // keep the record of a later stage
					r.decide(m, mutants.Packages, killed, by)
				}
			}
		})
	}
	for i := range r.list {
		// Test recorded mutants again, because a test may be newer than the
		// record.
		if m := &r.list[i]; m.Killed == "" && m.Why == "" && ctx.Err() == nil {
			next <- m
		}
	}
	close(next)
	work.Wait()
	return ctx.Err()
}

var failed = regexp.MustCompile(`(?m)^--- FAIL: (\S+)`)

// try runs the tests of a mutant's packages. It returns the stage and the test
// that killed the mutant.
func (r *run) try(ctx context.Context, m *mutants.Mutant) (killed mutants.Stage, by string, err error) {
	dir, err := os.MkdirTemp("", "brig-mutant-")
	if err != nil {
		return "", "", err
	}
	defer os.RemoveAll(dir)
	overlay, err := mutants.Overlay(r.root, dir, []mutants.Mutant{*m})
	if err != nil {
		return "", "", err
	}
	flags := []string{"-overlay", overlay, "-trimpath", "-tags", "grpcnotrace"}
	t := targetOf(m)
	if _, err := r.goRun(ctx, append(append([]string{"build"}, flags...), "./"+t.dir)...); err != nil {
		return mutants.Invalid, "", nil
	}
	args := append(append([]string{"test"}, flags...), "-failfast", "-vet=off", "-timeout", "3m")
	out, err := r.goRun(ctx, append(args, t.packages...)...)
	if err == nil {
		return "", "", nil
	}
	if f := failed.FindStringSubmatch(out); f != nil {
		return mutants.Packages, f[1], nil
	}
	return mutants.Packages, "panic or timeout", nil
}

func (r *run) env() []string {
	return append(os.Environ(), "CGO_ENABLED=0", "BRIG_BIN_DIR="+r.tree.Bin)
}

func (r *run) goRun(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Env = r.env()
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// decide records the result of a stage in a mutant's record.
func (r *run) decide(m *mutants.Mutant, stage, killed mutants.Stage, by string) {
	r.mu.Lock()
	m.Killed, m.By = killed, by
	if killed == "" {
		m.Survived = stage
	}
	r.mu.Unlock()
	fmt.Printf("%-28s %s %s\n", cmp.Or(string(killed), "survives "+string(stage)), m, by)
	if err := r.keep(); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
	}
}

// keep writes the record and the table.
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
