// Command totals reads the output of `go test -json`, prints what failed and
// what was skipped and why, and ends with one line of totals.
//
// With -again it prints instead which tests are worth a second look, a package
// and a name per line: see docs/adr/0034-unsteady.md. With -second it is given
// the file of what that second look came to.
package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// atMost is how many tests are looked at a second time. More than a few that
// fail are no accident.
const atMost = 3

type event struct {
	Action, Package, Test, Output string
	Elapsed                       float64
}

// failure is a test that failed, or a package: then it has no test.
type failure struct {
	pkg, test, output string
}

// top is the test that a subtest belongs to.
func (f failure) top() string {
	name, _, _ := strings.Cut(f.test, "/")
	return f.pkg + " " + name
}

// timed is a test and how long it took, in seconds.
type timed struct {
	test    string
	elapsed float64
}

// slowest is how many tests are named for their time.
const slowest = 25

// results is what tests came to.
type results struct {
	passed, skipped int
	failures        []failure
	skips           []string
	packages        []string // a line for each
	took            []timed
	noise           []string // of the go command itself
}

func main() {
	again := flag.Bool("again", false, "print which tests are worth a second look")
	second := flag.String("second", "", "`file` with what the second look came to")
	flag.Parse()
	r := read(os.Stdin)
	if *again {
		for _, f := range r.worthALook() {
			fmt.Println(f.pkg + "\t" + f.test)
		}
		return
	}
	unsteady := map[string]bool{}
	if *second != "" {
		f, err := os.Open(*second)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		unsteady = steadied(r.worthALook(), f)
	}
	if !r.print(unsteady) {
		os.Exit(1)
	}
}

func read(from io.Reader) *results {
	r := &results{}
	output := map[string][]string{}
	in := bufio.NewScanner(from)
	in.Buffer(nil, 64<<20)
	for in.Scan() {
		var e event
		if json.Unmarshal(in.Bytes(), &e) != nil {
			r.noise = append(r.noise, in.Text())
			continue
		}
		key := e.Package + " " + e.Test
		if e.Elapsed > 0 && e.Test != "" && !strings.Contains(e.Test, "/") {
			r.took = append(r.took, timed{key, e.Elapsed})
		}
		switch e.Action {
		case "output", "build-output":
			output[key] = append(output[key], e.Output)
		case "pass":
			if e.Test != "" {
				r.passed++
				delete(output, key)
			} else {
				r.packages = append(r.packages, fmt.Sprintf("ok   %-50s %6.1fs", e.Package, e.Elapsed))
			}
		case "skip":
			if e.Test != "" {
				r.skipped++
				r.skips = append(r.skips, key+": "+reason(output[key]))
			}
		case "fail", "build-fail":
			r.failures = append(r.failures, failure{e.Package, e.Test, strings.Join(output[key], "")})
			if e.Test == "" {
				r.packages = append(r.packages, fmt.Sprintf("FAIL %-50s %6.1fs", e.Package, e.Elapsed))
			}
		}
	}
	if err := in.Err(); err != nil {
		r.failures = append(r.failures, failure{pkg: "totals", output: err.Error()})
	}
	return r
}

// worthALook are the tests that may have failed by accident: a few, of
// packages in which every test came to its end.
func (r *results) worthALook() []failure {
	var out []failure
	failed := map[string]bool{} // packages of which a test failed
	for _, f := range r.failures {
		for _, sure := range []string{"panic: ", "fatal error: ", "WARNING: DATA RACE", "test timed out"} {
			if strings.Contains(f.output, sure) {
				return nil
			}
		}
		// What attacks is never looked at twice: one escape is an escape.
		if strings.HasSuffix(f.pkg, "(hostile)") || strings.Contains(f.test, "Attack") {
			return nil
		}
		if f.test != "" {
			failed[f.pkg] = true
		}
		if f.test != "" && !strings.Contains(f.test, "/") {
			out = append(out, f)
		}
	}
	for _, f := range r.failures {
		if f.test == "" && !failed[f.pkg] {
			return nil // it did not build, or ended before its tests did
		}
	}
	if len(out) > atMost {
		return nil
	}
	return out
}

// steadied are those of the tests that have passed in a second look, which is
// complete: one that did not even run has not.
func steadied(looked []failure, second io.Reader) map[string]bool {
	passed, failed := map[string]bool{}, map[string]bool{}
	in := bufio.NewScanner(second)
	in.Buffer(nil, 64<<20)
	for in.Scan() {
		var e event
		if json.Unmarshal(in.Bytes(), &e) != nil || e.Test == "" {
			continue
		}
		key := failure{pkg: e.Package, test: e.Test}.top()
		switch e.Action {
		case "pass":
			if !strings.Contains(e.Test, "/") {
				passed[key] = true
			}
		case "fail":
			failed[key] = true
		}
	}
	out := map[string]bool{}
	for _, f := range looked {
		if key := f.top(); in.Err() == nil && passed[key] && !failed[key] {
			out[key] = true
		}
	}
	return out
}

// print prints everything, and reports whether it is well.
func (r *results) print(unsteady map[string]bool) bool {
	for _, s := range slices.Concat(r.noise, r.packages) {
		fmt.Println(s)
	}
	failed, crashed := 0, 0
	left := map[string]bool{} // packages with a test that stays failed
	for _, f := range r.failures {
		if f.test == "" {
			continue
		}
		word := "---"
		if unsteady[f.top()] {
			word = "unsteady (failed, and passed when it was run alone):"
		} else {
			failed++
			left[f.pkg] = true
		}
		fmt.Printf("%s %s %s\n%s\n", word, f.pkg, f.test, f.output)
	}
	for _, f := range r.failures {
		if f.test != "" {
			continue
		}
		fmt.Printf("--- %s\n%s\n", f.pkg, f.output)
		if !left[f.pkg] && !slices.ContainsFunc(r.failures, func(t failure) bool { return t.pkg == f.pkg && unsteady[t.top()] }) {
			crashed++ // it did not build, or ended before its tests did
		}
	}
	slices.SortFunc(r.took, func(a, b timed) int { return cmp.Compare(b.elapsed, a.elapsed) })
	for _, t := range r.took[:min(slowest, len(r.took))] {
		fmt.Printf("took %6.1fs %s\n", t.elapsed, t.test)
	}
	slices.Sort(r.skips)
	for _, s := range r.skips {
		fmt.Println("skipped:", s)
	}
	line := fmt.Sprintf("%d passed, %d failed, %d skipped", r.passed, failed+crashed, r.skipped)
	if len(unsteady) > 0 {
		line += fmt.Sprintf(", %d unsteady", len(unsteady))
	}
	fmt.Println(line)
	return failed+crashed == 0 && r.passed > 0
}

// reason finds what a test said when it skipped.
func reason(lines []string) string {
	for _, l := range lines {
		l = strings.TrimSpace(l)
		if l != "" && !strings.HasPrefix(l, "=== ") && !strings.HasPrefix(l, "--- ") {
			return l
		}
	}
	return "no reason given"
}
