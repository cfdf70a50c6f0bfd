package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/brig-run/brig/internal/mutants"
	"github.com/brig-run/brig/internal/suite"
)

// endToEnd runs the end-to-end tests on the mutants that have survived so far. It builds one
// program with all survivors and runs every test. If tests fail, it runs those tests with each
// mutant alone. It repeats this without the killed mutants, until no test fails or no remaining
// mutant is killed alone.
func (r *run) endToEnd(ctx context.Context, stage mutants.Stage) error {
	before := map[mutants.Stage]mutants.Stage{mutants.Small: mutants.Packages, mutants.Full: mutants.Small}[stage]
	for {
		batch := r.batch(before)
		if len(batch) == 0 {
			return nil
		}
		failing, err := r.suite(ctx, stage, batch, r.tests, false)
		if err != nil {
			return err
		}
		if len(failing) > 0 { // some tests may fail even without mutants
			broken, err := r.suite(ctx, stage, nil, failing, false)
			if err != nil {
				return err
			}
			failing = slices.DeleteFunc(failing, func(t suite.Test) bool {
				if slices.Contains(broken, t) {
					fmt.Printf("%s fails without a mutant\n", t.Name)
				}
				return slices.Contains(broken, t)
			})
		}
		fmt.Printf("%s: %d mutants at once, %d tests fail\n", stage, len(batch), len(failing))
		killed := 0
		if len(failing) > 0 {
			if killed, err = r.tryEach(ctx, stage, batch, failing); err != nil {
				return err
			}
		}
		if killed == 0 {
			for _, m := range batch {
				r.decide(m, stage, "", "")
			}
		}
	}
}

// batch returns the mutants whose last stage was before and for which no reason
// to survive is recorded. It includes only one mutant per position; the others
// follow in the next batch.
func (r *run) batch(before mutants.Stage) (out []*mutants.Mutant) {
	places := map[string]bool{}
	for i := range r.list {
		m := &r.list[i]
		place := fmt.Sprint(m.File, m.Line, m.Column)
		if isUntried(m) && m.Survived == before && !places[place] && m.Applies(r.root) {
			out, places[place] = append(out, m), true
		}
	}
	return out
}

// tryEach runs the tests that failed with all mutants for each mutant alone, and returns the number
// of killed mutants.
func (r *run) tryEach(ctx context.Context, stage mutants.Stage, batch []*mutants.Mutant, failing []suite.Test) (killed int, err error) {
	for _, m := range batch {
		by, err := r.suite(ctx, stage, []*mutants.Mutant{m}, failing, true)
		if err != nil {
			return killed, err
		}
		if len(by) > 0 {
			r.decide(m, stage, stage, by[0].Name)
			killed++
		}
	}
	return killed, nil
}

// suite builds the programs with some mutants, runs tests, and returns the failed tests, or only
// the first of them.
func (r *run) suite(ctx context.Context, stage mutants.Stage, list []*mutants.Mutant, tests []suite.Test, first bool) (failing []suite.Test, err error) {
	dir, err := os.MkdirTemp("", "brig-mutant-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	// Build even if there is no mutant: a test may fail because of the
	// different directory.
	tree := *r.tree
	crash := slices.ContainsFunc(tests, func(t suite.Test) bool { return t.Part == "crash" || t.Part == "workspaces" })
	if tree.Bin, err = r.build(ctx, dir, list, crash); err != nil {
		return nil, err
	}
	runner := &suite.Runner{Out: io.Discard, Slots: 3, Times: r.times, FailFast: first}
	runner.Run(ctx, tree.EndToEnd(tests, suite.Options{Full: stage == mutants.Full, Rotation: "0"}))
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	for _, t := range tests {
		if slices.ContainsFunc(runner.Failures(), func(f suite.Failure) bool {
			job, _, _ := strings.Cut(f.Job, " (")
			return job == t.Name || t.With != "" && job == t.With
		}) {
			failing = append(failing, t)
		}
	}
	return failing, nil
}

// build builds the programs that contain the mutated code, and adds links to
// the other programs. Only crash tests need the program with failpoints.
func (r *run) build(ctx context.Context, dir string, list []*mutants.Mutant, crash bool) (string, error) {
	plain := make([]mutants.Mutant, len(list))
	for i, m := range list {
		plain[i] = *m
	}
	overlay, err := mutants.Overlay(r.root, dir, plain)
	if err != nil {
		return "", err
	}
	bin := filepath.Join(dir, "bin")
	if err := os.MkdirAll(filepath.Join(bin, "test"), 0o755); err != nil {
		return "", err
	}
	flags := []string{"-overlay", overlay, "-buildvcs=false", "-trimpath", "-ldflags", "-s -w", "-tags"}
	builds := map[string][]string{
		"brig":          append(append([]string{"build"}, flags...), "grpcnotrace", "-o", filepath.Join(bin, "brig"), "./cmd/brig"),
		"test/e2e.test": append(append([]string{"test", "-c", "-vet=off"}, flags...), "grpcnotrace,failpoints", "-o", filepath.Join(bin, "test", "e2e.test"), "./e2e"),
	}
	if crash {
		builds["test/brig-failpoints"] = append(append([]string{"build"}, flags...), "grpcnotrace,failpoints", "-o", filepath.Join(bin, "test", "brig-failpoints"), "./cmd/brig")
	}
	for _, args := range builds {
		if out, err := r.goRun(ctx, args...); err != nil {
			return "", fmt.Errorf("go %v: %w: %s", args, err, out)
		}
	}
	for _, pattern := range []string{"brig-*", "test/*"} {
		names, err := filepath.Glob(filepath.Join(r.tree.Bin, pattern))
		if err != nil {
			return "", err
		}
		for _, name := range names {
			rel, err := filepath.Rel(r.tree.Bin, name)
			if err == nil && builds[rel] == nil {
				err = os.Symlink(name, filepath.Join(bin, rel))
			}
			if err != nil {
				return "", err
			}
		}
	}
	return bin, nil
}
