package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/brig-run/brig/internal/mutants"
	"github.com/brig-run/brig/internal/suite"
)

// endToEnd tries what has survived so far with the end-to-end tests. All
// survivors go into one program. While tests fail with it, each of those
// survivors is tried alone with the tests that failed, and those that are killed
// leave the program. What is in it when all tests pass has survived the stage.
func (r *run) endToEnd(ctx context.Context, stage mutants.Stage) error {
	tried := map[string]bool{}
	for ctx.Err() == nil {
		var batch []*mutants.Mutant
		places := map[string]bool{} // a place is changed once
		for i := range r.list {
			m := &r.list[i]
			place := fmt.Sprint(m.File, m.Line, m.Column)
			if m.Killed == mutants.Nothing && m.Why == "" && !tried[m.Key()] && !places[place] {
				batch, places[place] = append(batch, m), true
			}
		}
		if len(batch) == 0 || time.Now().After(r.end) {
			return nil
		}
		killers, err := r.suite(ctx, stage, batch, r.tests)
		if err != nil {
			return err
		}
		fmt.Printf("%s: %d mutants at once, %d tests fail\n", stage, len(batch), len(killers))
		if len(killers) == 0 {
			for _, m := range batch {
				tried[m.Key()] = true
			}
			continue
		}
		if err := r.alone(ctx, stage, batch, killers, tried); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// most is how many of the tests that failed are tried with each mutant.
const most = 6

// alone tries each mutant with the tests that failed with all of them.
func (r *run) alone(ctx context.Context, stage mutants.Stage, batch []*mutants.Mutant, killers []suite.Test, tried map[string]bool) error {
	slices.SortFunc(killers, func(a, b suite.Test) int {
		return int(r.times.Jobs["end to end: "+a.Name] - r.times.Jobs["end to end: "+b.Name])
	})
	killers = killers[:min(most, len(killers))]
	none := true
	for _, m := range batch {
		by, err := r.suite(ctx, stage, []*mutants.Mutant{m}, killers)
		if err != nil {
			return err
		}
		if len(by) > 0 {
			r.decide(m, stage, by[0].Name)
			none = false
		}
	}
	if none && len(batch) > 1 { // they fail together only: the next are tried without the first half
		for _, m := range batch[:len(batch)/2] {
			tried[m.Key()] = true
		}
	} else if none {
		tried[batch[0].Key()] = true
	}
	return nil
}

// suite builds brig and the end-to-end tests with some mutants, runs tests, and
// returns those that failed.
func (r *run) suite(ctx context.Context, stage mutants.Stage, list []*mutants.Mutant, tests []suite.Test) ([]suite.Test, error) {
	dir, err := os.MkdirTemp("", "brig-mutant-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	bin, err := r.build(ctx, dir, list)
	if err != nil {
		return nil, err
	}
	tree := *r.tree
	tree.Bin = bin
	var mine []suite.Test
	for _, t := range tests {
		if stage == mutants.Full || !t.Full {
			mine = append(mine, t)
		}
	}
	runner := &suite.Runner{Out: io.Discard, Slots: 3, Times: r.times}
	runner.Run(ctx, tree.EndToEnd(mine, suite.Options{Full: stage == mutants.Full, Rotation: "0"}))
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	var out []suite.Test
	for _, t := range mine {
		if slices.ContainsFunc(runner.Failures(), func(f suite.Failure) bool { return f.Job == t.Name || t.With != "" && f.Job == t.With }) {
			out = append(out, t)
		}
	}
	return out, nil
}

// build builds the programs that have the engine in them, beside the others.
func (r *run) build(ctx context.Context, dir string, list []*mutants.Mutant) (string, error) {
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
	for _, pattern := range []string{"brig-*", "test/*"} {
		names, err := filepath.Glob(filepath.Join(r.tree.Bin, pattern))
		if err != nil {
			return "", err
		}
		for _, name := range names {
			rel, err := filepath.Rel(r.tree.Bin, name)
			if err != nil {
				return "", err
			}
			if rel != "test/e2e.test" {
				if err := os.Symlink(name, filepath.Join(bin, rel)); err != nil {
					return "", err
				}
			}
		}
	}
	flags := []string{"-overlay", overlay, "-buildvcs=false", "-trimpath", "-tags", "grpcnotrace", "-ldflags", "-s -w"}
	for _, args := range [][]string{
		append(append([]string{"build"}, flags...), "-o", filepath.Join(bin, "brig"), "./cmd/brig"),
		append(append([]string{"test", "-c", "-vet=off"}, flags...), "-o", filepath.Join(bin, "test", "e2e.test"), "./e2e"),
	} {
		if out, err := r.goRun(ctx, args...); err != nil {
			return "", fmt.Errorf("go %v: %w: %s", args, err, out)
		}
	}
	return bin, nil
}
