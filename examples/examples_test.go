// Package examples_test holds the examples to compiling: each is a module of
// its own, as those are that other people write.
package examples_test

import (
	"os/exec"
	"path/filepath"
	"testing"
)

func TestExamples(t *testing.T) {
	modules, err := filepath.Glob("*/go.mod")
	if err != nil || len(modules) == 0 {
		t.Fatalf("there are no examples: %v", err)
	}
	for _, m := range modules {
		for _, args := range [][]string{{"vet", "./..."}, {"test", "-count=1", "./..."}} {
			cmd := exec.Command("go", args...)
			cmd.Dir = filepath.Dir(m)
			// They need nothing but what is here.
			cmd.Env = append(cmd.Environ(), "GOPROXY=off", "GOFLAGS=-mod=readonly", "CGO_ENABLED=0")
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%s: go %v: %v\n%s", cmd.Dir, args, err, out)
			}
		}
	}
}
