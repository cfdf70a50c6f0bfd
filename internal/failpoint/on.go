//go:build failpoints

package failpoint

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Enabled says whether this binary has failpoints.
const Enabled = true

const (
	specVariable  = "BRIG_FAILPOINTS"
	marksVariable = "BRIG_FAILPOINTS_MARKS"
)

var (
	mu   sync.Mutex // guards the field below
	seen = map[string]int{}
)

// Hit is a moment at which the process may die.
func Hit(name string) { _ = Fail(name) }

// Fail is a moment at which what is being done may fail.
func Fail(name string) error {
	for _, rule := range strings.FieldsFunc(spec(), func(r rune) bool { return r == ';' || r == '\n' }) {
		if to, what, ok := strings.Cut(strings.TrimSpace(rule), "="); ok && to == name {
			return act(name, what)
		}
	}
	return nil
}

func spec() string {
	s := os.Getenv(specVariable)
	if file, ok := strings.CutPrefix(s, "@"); ok {
		b, _ := os.ReadFile(file) // no file, no points
		s = string(b)
	}
	return s
}

// act does what a rule says: crash, error or sleep, with an argument or not.
func act(name, what string) error {
	what, argument, _ := strings.Cut(strings.TrimSuffix(what, ")"), "(")
	if what != "sleep" && argument != "" {
		n, err := strconv.Atoi(argument)
		if err != nil {
			return fmt.Errorf("failpoint %s: %q is no number", name, argument)
		}
		mu.Lock()
		seen[name]++
		now := seen[name] == n
		mu.Unlock()
		if !now {
			return nil
		}
	}
	if !mark(name) {
		return nil
	}
	switch what {
	case "crash":
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	case "error":
		return fmt.Errorf("failpoint %s", name)
	case "sleep":
		d, err := time.ParseDuration(argument)
		time.Sleep(d)
		return err
	}
	return fmt.Errorf("failpoint %s: no action %q", name, what)
}

// mark reports whether the point may act: always without a folder for marks,
// and once with it.
func mark(name string) bool {
	dir := os.Getenv(marksVariable)
	if dir == "" {
		return true
	}
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return false
	}
	f.Close()
	return true
}

// Environment is what a child process needs to have the same failpoints.
func Environment() []string {
	var out []string
	for _, name := range []string{specVariable, marksVariable} {
		if v := os.Getenv(name); v != "" {
			out = append(out, name+"="+v)
		}
	}
	return out
}
