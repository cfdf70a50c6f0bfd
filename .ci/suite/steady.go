package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
)

// runSteady runs make test several times beside busy loops, and prints a table of the tests
// that were unsteady. It reports whether no test failed in all its tries.
func (s *session) runSteady(ctx context.Context, runs, busy int) (bool, error) {
	for range busy {
		cmd := exec.CommandContext(ctx, "sh", "-c", "while :; do :; done")
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if err := cmd.Start(); err != nil {
			return false, err
		}
		defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	}
	s.options.Count = max(1, s.options.Count) // a cached result shows nothing about this run
	green, unsteady, failed := true, map[string][]string{}, map[string][]string{}
	for run := 1; run <= runs && ctx.Err() == nil; run++ {
		fmt.Printf("== run %d of %d, beside %d busy loops\n", run, runs, busy)
		s.runner = s.newRunner()
		if err := s.runSmall(ctx); err != nil {
			return false, err
		}
		s.finish(ctx, true)
		green = s.runner.Report(os.Stdout, s.notes...) && green
		s.notes = nil
		for _, u := range s.runner.Unsteady() {
			unsteady[u.Test] = append(unsteady[u.Test], fmt.Sprint(run))
		}
		for _, f := range s.runner.Failures() {
			name := strings.TrimSpace(f.Package + " " + f.Test)
			if name == "" {
				name = f.Job
			}
			failed[name] = append(failed[name], fmt.Sprint(run))
		}
	}
	printRuns("Unsteady", unsteady)
	printRuns("Failed", failed)
	return green && ctx.Err() == nil, nil
}

// printRuns prints the runs in which each test had the given result.
func printRuns(what string, runs map[string][]string) {
	fmt.Printf("\n%s: %d\n", what, len(runs))
	for _, name := range slices.Sorted(maps.Keys(runs)) {
		fmt.Printf("  %s: in run %s\n", name, strings.Join(slices.Compact(runs[name]), ", "))
	}
}
