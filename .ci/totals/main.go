// Command totals reads the output of `go test -json`, prints what failed and
// what was skipped and why, and ends with one line of totals.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
)

type event struct {
	Action, Package, Test, Output string
	Elapsed                       float64
}

func main() {
	output := map[string][]string{}
	var passed, failed, skipped int
	var skips, failures []string
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 64<<20)
	for in.Scan() {
		var e event
		if json.Unmarshal(in.Bytes(), &e) != nil {
			fmt.Println(in.Text()) // of the go command itself
			continue
		}
		key := e.Package + " " + e.Test
		switch e.Action {
		case "output", "build-output":
			output[key] = append(output[key], e.Output)
		case "pass":
			if e.Test != "" {
				passed++
				delete(output, key)
			} else {
				fmt.Printf("ok   %-50s %6.1fs\n", e.Package, e.Elapsed)
			}
		case "skip":
			if e.Test != "" {
				skipped++
				skips = append(skips, key+": "+reason(output[key]))
			}
		case "fail", "build-fail":
			failures = append(failures, "--- "+key+"\n"+strings.Join(output[key], ""))
			if e.Test != "" {
				failed++
			} else {
				fmt.Printf("FAIL %-50s %6.1fs\n", e.Package, e.Elapsed)
			}
		}
	}
	slices.Sort(skips)
	for _, f := range failures {
		fmt.Println(f)
	}
	for _, s := range skips {
		fmt.Println("skipped:", s)
	}
	if len(failures) > 0 && failed == 0 {
		failed = len(failures) // packages that did not build or crashed
	}
	fmt.Printf("%d passed, %d failed, %d skipped\n", passed, failed, skipped)
	if failed > 0 || passed == 0 {
		os.Exit(1)
	}
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
