package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/brig-run/brig/internal/nofollow"
)

// swap repeatedly swaps a directory with a link to another one until it is
// killed. It prints "ready" when it begins.
func swap(dir, outside string) error {
	if err := prepareSwap(dir, outside); err != nil {
		return err
	}
	fmt.Println("ready")
	for {
		exchange(dir)
	}
}

func prepareSwap(dir, outside string) error {
	return errors.Join(os.MkdirAll(filepath.Join(dir, "here"), 0o777),
		os.WriteFile(filepath.Join(dir, "here", "mark"), []byte("inside"), 0o644),
		os.Symlink(outside, filepath.Join(dir, "link")))
}

// exchange replaces "here" with the link and then with the directory again. It
// ignores errors, because a test may remove and recreate the entries
// concurrently.
func exchange(dir string) {
	here, link, spare := filepath.Join(dir, "here"), filepath.Join(dir, "link"), filepath.Join(dir, "spare")
	_ = unix.Rename(here, spare)
	_ = unix.Rename(link, here)
	_ = unix.Rename(here, link)
	_ = unix.Rename(spare, here)
}

// opens opens a directory that is concurrently swapped with a link, with
// os.Root and with package nofollow, and counts the opens that resolved to the
// outside directory.
func opens(dir, outside, rounds string) error {
	n, err := strconv.Atoi(rounds)
	if err != nil {
		return err
	}
	if err := prepareSwap(dir, outside); err != nil {
		return err
	}
	var stop atomic.Bool
	var swaps sync.WaitGroup
	swaps.Go(func() {
		for !stop.Load() {
			exchange(dir)
		}
	})
	defer swaps.Wait()
	defer stop.Store(true)
	f := facts{}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	count(f, "root", n, func() (string, error) {
		d, err := root.OpenRoot("here")
		if err != nil {
			return "", err
		}
		defer func() { _ = d.Close() }()
		b, err := d.ReadFile("mark")
		return string(b), err
	})
	count(f, "root.path", n, func() (string, error) {
		b, err := root.ReadFile("here/mark")
		return string(b), err
	})
	own, err := nofollow.Open(dir)
	if err != nil {
		return err
	}
	defer func() { _ = own.Close() }()
	count(f, "nofollow", n, func() (string, error) {
		d, err := own.Dir("here")
		if err != nil {
			return "", err
		}
		defer func() { _ = d.Close() }()
		return content(d)
	})
	count(f, "nofollow.walk", n, func() (string, error) {
		d, err := own.Walk("here")
		if err != nil {
			return "", err
		}
		defer func() { _ = d.Close() }()
		return content(d)
	})
	return report(f)
}

func content(d *nofollow.Dir) (string, error) {
	file, err := d.Open("mark", os.O_RDONLY, 0)
	if err != nil {
		return "", err
	}
	defer file.Close()
	b, err := io.ReadAll(file)
	return string(b), err
}

// count calls open n times, and records how often the result was inside,
// outside, or an error. A loaded machine may schedule the swaps unevenly, so it
// continues until the results inside and the errors are a twentieth of n each,
// but makes at most 20 n calls.
func count(f facts, name string, n int, open func() (string, error)) {
	inside, outside, refused := 0, 0, 0
	for i := 0; i < n || i < 20*n && min(inside, refused) < n/20; i++ {
		switch got, err := open(); {
		case err != nil:
			refused++
		case got == "inside":
			inside++
		default:
			outside++
		}
	}
	f[name+".inside"], f[name+".outside"], f[name+".refused"] = strconv.Itoa(inside), strconv.Itoa(outside), strconv.Itoa(refused)
}
