// Command attack runs the tests that attack Brig and reports the results. If a
// record file is given, it only reports on that file.
package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/brig-run/brig/internal/attack"
	"github.com/brig-run/brig/internal/attack/find"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string) error {
	var failed error
	if len(args) == 0 {
		f, err := os.CreateTemp("", "brig-attack-")
		if err != nil {
			return err
		}
		f.Close()
		defer os.Remove(f.Name())
		args = []string{f.Name()}
		if failed, err = runBattery(f.Name()); err != nil {
			return err
		}
	}
	book, err := os.Open(args[0])
	if err != nil {
		return err
	}
	defer book.Close()
	b, err := attack.Read(book)
	if err != nil {
		return err
	}
	remains, err := residual()
	if err != nil {
		return err
	}
	fmt.Println("What remains (SECURITY.md):")
	fmt.Println(remains)
	if problems := b.Report(os.Stdout, attack.Catalogue(), true); len(problems) > 0 {
		failed = errors.Join(failed, fmt.Errorf("%d things are wrong", len(problems)))
	}
	return failed
}

// runBattery runs the tests that record attacks, one package after another,
// because they measure the whole host.
func runBattery(book string) (failed, err error) {
	found, err := find.Tests(".")
	if err != nil {
		return nil, err
	}
	began := time.Now()
	defer func() { fmt.Printf("== all of them: %s\n", time.Since(began).Round(time.Second)) }()
	for _, dir := range slices.Sorted(maps.Keys(found)) {
		fmt.Printf("== ./%s: %d tests\n", dir, len(found[dir]))
		cmd := exec.Command("go", "test", "-count=1", "-timeout", "20m", "-run", "^("+strings.Join(found[dir], "|")+")$", "./"+dir)
		cmd.Env = append(os.Environ(), attack.Env+"="+book)
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		if err := cmd.Run(); err != nil {
			failed = errors.Join(failed, fmt.Errorf("./%s: %w", dir, err))
		}
	}
	return failed, nil
}

// residual returns the section of SECURITY.md about the limits of the
// guarantees.
func residual() (string, error) {
	b, err := os.ReadFile("SECURITY.md")
	if err != nil {
		return "", err
	}
	_, section, ok := strings.Cut(string(b), "\n## Not promised\n")
	if !ok {
		return "", errors.New("SECURITY.md does not say what is not promised")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	return strings.TrimSpace(section), nil
}
