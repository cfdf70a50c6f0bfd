package suite

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
)

// Report prints the results of all plans: parts with times, the slowest tests, skipped tests
// with the reason, failures with their output, unsteady tests, and one line of totals. It
// reports whether each test passed, either at first or when it ran again.
func (r *Runner) Report(w io.Writer, notes ...string) bool {
	fmt.Fprintf(w, "\n%-16s %8s %7s %8s %8s\n", "part", "passed", "failed", "skipped", "time")
	var total time.Duration
	for _, f := range r.finished {
		total += f.Duration
		for _, p := range f.Parts {
			fmt.Fprintf(w, "%-16s %8d %7d %8d %8s\n", p.Name, p.passed, p.failed, p.skipped, formatDuration(p.Duration))
		}
	}
	res := &r.results
	slices.SortStableFunc(res.tests, func(a, b TestDuration) int { return cmp.Compare(b.Duration, a.Duration) })
	fmt.Fprintf(w, "\nThe slowest tests:\n")
	for _, t := range res.tests[:min(cmp.Or(r.SlowTests, 10), len(res.tests))] {
		fmt.Fprintf(w, "%7.1fs  %s\n", t.Duration.Seconds(), t.Name)
	}
	printSkips(w, res.skips)
	r.printUnsteady(w)
	r.printFailures(w)
	for _, n := range append(notes, r.verdicts...) {
		fmt.Fprintf(w, "\n%s\n", n)
	}
	if len(r.unsteady) > 0 {
		fmt.Fprintf(w, "\nUnsteady: %d. List them in docs/unsteady.md with the cause, and repair it.\n", len(r.unsteady))
		for _, u := range r.unsteady {
			fmt.Fprintf(w, "%5d  %s: failed before it passed\n", u.Failed, u.Test)
		}
	}
	fmt.Fprintf(w, "\nTook %s.\n%d passed, %d failed, %d skipped\n", formatDuration(total), res.all.passed, res.all.failed, res.all.skipped)
	return res.all.failed == 0 && res.all.passed > 0
}

// printFailures prints each failure with its output and the command that
// repeats it. It omits a test that failed only because of a subtest and printed
// no output itself.
func (r *Runner) printFailures(w io.Writer) {
	for _, f := range r.results.failures {
		if isFailedBySubtest(f, r.results.failures) {
			continue
		}
		fmt.Fprintf(w, "\n--- FAIL: %s\n%s", strings.TrimSpace(f.Job+" "+f.Test), shorten(f.Output))
		fmt.Fprintf(w, "    repeat: %s\n", f.Repeat)
	}
}

// isFailedBySubtest reports whether a test failed because of a subtest, and printed no
// output itself.
func isFailedBySubtest(f Failure, failures []Failure) bool {
	return f.Test != "" && slices.ContainsFunc(failures, func(g Failure) bool {
		return g.Job == f.Job && strings.HasPrefix(g.Test, f.Test+"/")
	}) && !hasOwnOutput(f)
}

// longest is the maximum number of output lines to print per failure. The
// goroutines of a test that hangs need most of them.
const longest = 2000

// shorten removes the middle of a long output.
func shorten(output string) string {
	lines := strings.SplitAfter(output, "\n")
	if len(lines) <= longest {
		return output
	}
	gap := fmt.Sprintf("… %d lines …\n", len(lines)-longest)
	return strings.Join(lines[:longest/2], "") + gap + strings.Join(lines[len(lines)-longest/2:], "")
}

// hasOwnOutput reports whether a failed test printed more than the lines of the
// testing package.
func hasOwnOutput(f Failure) bool {
	for l := range strings.Lines(f.Output) {
		l = strings.TrimSpace(l)
		if l != "" && !strings.HasPrefix(l, "=== ") && !strings.HasPrefix(l, "--- ") {
			return true
		}
	}
	return false
}

// printSkips prints the skipped tests: one line per test and reason.
func printSkips(w io.Writer, skips []Skip) {
	if len(skips) == 0 {
		return
	}
	fmt.Fprintf(w, "\nSkipped:\n")
	count := map[Skip]int{}
	for _, s := range skips {
		pkg, name, _ := strings.Cut(s.Test, " ")
		if top, _, sub := strings.Cut(name, "/"); sub {
			s.Test = pkg + " " + top + "/*"
		}
		count[s]++
	}
	for _, s := range slices.SortedFunc(maps.Keys(count), func(a, b Skip) int {
		return cmp.Or(cmp.Compare(a.Test, b.Test), cmp.Compare(a.Reason, b.Reason))
	}) {
		fmt.Fprintf(w, "%5d  %s: %s\n", count[s], s.Test, s.Reason)
	}
}
