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

// Enabled reports whether this binary has failpoints.
const Enabled = true

const (
	specVariable  = "BRIG_FAILPOINTS"
	marksVariable = "BRIG_FAILPOINTS_MARKS"
)

var (
	mu   sync.Mutex // guards the field below
	seen = map[string]int{}
)

// Hit marks a point at which the process may crash.
func Hit(name string) { _ = Fail(name) }

// Fail marks a point at which the current operation may fail.
func Fail(name string) error {
	for _, rule := range strings.FieldsFunc(readSpec(), func(r rune) bool { return r == ';' || r == '\n' }) {
		if to, what, ok := strings.Cut(strings.TrimSpace(rule), "="); ok && to == name {
			return perform(name, what)
		}
	}
	return nil
}

func readSpec() string {
	s := os.Getenv(specVariable)
	if file, ok := strings.CutPrefix(s, "@"); ok {
		b, _ := os.ReadFile(file) // if the file is missing, no point is active
		s = string(b)
	}
	return s
}

// perform performs the action of a rule: crash, error or sleep, with an optional
// argument.
func perform(name, what string) error {
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
	if !canAct(name) {
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

// canAct reports whether the point may act. Without a directory for marks, a point may always
// act, and otherwise only once.
func canAct(name string) bool {
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

// Environment returns the variables that pass the failpoints to a child
// process.
func Environment() []string {
	var out []string
	for _, name := range []string{specVariable, marksVariable} {
		if v := os.Getenv(name); v != "" {
			out = append(out, name+"="+v)
		}
	}
	return out
}
