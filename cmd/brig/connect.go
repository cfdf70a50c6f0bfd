package main

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/client"
)

// dataFolder finds the data folder: the flag, the environment, or the usual
// place of whoever asks.
func (c *cli) dataFolder() (string, error) {
	for _, dir := range []string{c.dataDir, os.Getenv("BRIG_DATA_DIR")} {
		if dir != "" {
			return filepath.Abs(dir)
		}
	}
	if os.Geteuid() == 0 {
		return "/var/lib/brig", nil
	}
	if dir := os.Getenv("XDG_DATA_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "brig"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", brig.Errorf(brig.NotInitialized, "there is no data folder").
			WithHint("name one with --data-dir or BRIG_DATA_DIR").Because(err)
	}
	return filepath.Join(home, ".local", "share", "brig"), nil
}

// service returns what carries out commands: a server's client, or an engine
// of our own. With ephemeral it is only for one-shots, which need no records.
func (c *cli) service(ctx context.Context, ephemeral bool) (brig.Service, context.Context, func(), error) {
	dir, err := c.dataFolder()
	if err != nil {
		return nil, nil, nil, err
	}
	to, err := c.destination(dir)
	if err != nil {
		return nil, nil, nil, err
	}
	if to.URL == "" {
		return c.local(ctx, dir, ephemeral)
	}
	svc, err := client.New(to)
	return svc, ctx, func() {}, err
}

// use calls f with what carries out commands, for as long as f takes.
func (c *cli) use(cmd *cobra.Command, ephemeral bool, f func(context.Context, brig.Service) error) error {
	svc, ctx, done, err := c.service(cmd.Context(), ephemeral)
	if err != nil {
		return err
	}
	defer done()
	return f(ctx, svc)
}

// The files of a data folder that this command owns.
const (
	keyFile    = "admin.key"
	ownerFile  = "owner.lock"  // held by whoever uses the records
	serverFile = "server.json" // where a server listens, while it holds the lock
	dbFile     = "brig.db"
)

// handOver is how long the lock of an owner that was killed may outlive it: a
// child that it was just starting holds it until it has become a program.
const handOver = 3 * time.Second

// takeOver takes the data folder's lock, also from an owner that just died, and
// removes what that one has announced: with the lock it would be taken for true,
// and the key sent to whoever listens there now.
func takeOver(dir string) (*os.File, error) {
	for deadline := time.Now().Add(handOver); ; time.Sleep(20 * time.Millisecond) {
		lock, err := own(dir)
		if err == nil {
			err = os.Remove(filepath.Join(dir, serverFile))
			if err == nil || errors.Is(err, fs.ErrNotExist) {
				return lock, nil
			}
			lock.Close()
		}
		if brig.KindOf(err) != brig.FailedPrecondition || time.Now().After(deadline) {
			return nil, err
		}
	}
}

// makeFolder makes the data folder, if it is not there.
func makeFolder(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return brig.Errorf(brig.NotInitialized, "the data folder cannot be made").
			WithHint("choose a folder that you may write to with --data-dir").Because(err)
	}
	return nil
}

// own takes the data folder's lock, or fails at once.
func own(dir string) (*os.File, error) {
	if err := makeFolder(dir); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(dir, ownerFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		if errors.Is(err, fs.ErrPermission) {
			err = brig.Errorf(brig.NotInitialized, "the data folder belongs to somebody else").
				WithHint("choose a folder of your own with --data-dir").Because(err)
		}
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, brig.Errorf(brig.FailedPrecondition, "another brig uses this data folder").
			WithHint("wait for it, or let `brig serve` share the folder").Because(err)
	}
	return f, nil
}

// isTerminal reports whether v is a terminal.
func isTerminal(v any) bool {
	f, ok := v.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
