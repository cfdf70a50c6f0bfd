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

// resolveDataFolder returns the data folder from the flag, the environment or the
// user's default, in this order.
func (c *cli) resolveDataFolder() (string, error) {
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
		return "", brig.Errorf(brig.NotInitialized, "there is no home folder, and so no default data folder").
			WithHint("choose a folder with --data-dir or BRIG_DATA_DIR").Because(err)
	}
	return filepath.Join(home, ".local", "share", "brig"), nil
}

// openService returns the service that commands use: a client of a server, or an
// engine in this process. If ephemeral is set, the service is only for
// one-shots, which need no records.
func (c *cli) openService(ctx context.Context, ephemeral bool) (brig.Service, context.Context, func(), error) {
	dir, err := c.resolveDataFolder()
	if err != nil {
		return nil, nil, nil, err
	}
	to, err := c.resolveDestination(dir)
	if err != nil {
		return nil, nil, nil, err
	}
	if to.URL == "" {
		return c.openLocal(ctx, dir, ephemeral)
	}
	svc, err := client.New(to)
	return svc, ctx, func() {}, err
}

// use calls f with the service, and closes the service afterwards.
func (c *cli) use(cmd *cobra.Command, ephemeral bool, f func(context.Context, brig.Service) error) error {
	svc, ctx, done, err := c.openService(cmd.Context(), ephemeral)
	if err != nil {
		return err
	}
	defer done()
	return f(ctx, svc)
}

// These files of the data folder are written by the command itself.
const (
	keyFile    = "admin.key"
	ownerFile  = "owner.lock"  // locked by the process that uses the records
	serverFile = "server.json" // the server's URL, valid while the server holds the lock
	dbFile     = "brig.db"
)

// lockTimeout is how long the lock of a killed owner may outlive the owner. A child process that
// the owner had just forked holds the lock until the child calls exec.
const lockTimeout = 3 * time.Second

// acquireLock takes the data folder's lock and removes the previous owner's announcement.
// Otherwise, clients would attribute the announcement to the new owner and connect to a stale
// address. acquireLock waits for the lock of an owner that was just killed.
func acquireLock(dir string) (*os.File, error) {
	for deadline := time.Now().Add(lockTimeout); ; time.Sleep(20 * time.Millisecond) {
		lock, err := tryLock(dir)
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

// tryLock takes the data folder's lock, or fails immediately.
func tryLock(dir string) (*os.File, error) {
	if err := makeFolder(dir); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(dir, ownerFile), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		if errors.Is(err, fs.ErrPermission) {
			err = brig.Errorf(brig.NotInitialized, "cannot open the data folder %s: permission denied", dir).
				WithHint("choose a folder that you can write to with --data-dir, or run as the folder's owner").Because(err)
		}
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, brig.Errorf(brig.FailedPrecondition, "another brig process uses the data folder %s", dir).
			WithHint("wait until it ends, or start brig serve: many commands can use a server at once")
	}
	return f, nil
}

// isTerminal reports whether v is a terminal.
func isTerminal(v any) bool {
	f, ok := v.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
