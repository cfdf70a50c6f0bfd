package envd

import (
	"bufio"
	"context"
	"io"
	"maps"
	"path"
	"strconv"
	"strings"
	"sync"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/guest/wire"
)

// account is the account of a sandbox with which an operation runs.
type account struct {
	user string // for brig.Command and brig.Path
	home string
	env  map[string]string // variables that describe the account; nil for the standard accounts
}

// passwdFile lists the accounts of a sandbox. A program that runs as root can change it, so it is
// read for each operation.
const passwdFile = "/etc/passwd"

// maxPasswd is the maximum size of the part of passwdFile that is read.
const maxPasswd = brig.MiB

// foundAccounts keeps the result of the last lookup during a request, which may name thousands of
// files.
type foundAccounts struct {
	files brig.Files // of the sandbox
	// causedByEnd reports whether the end of the sandbox caused an error.
	causedByEnd func(context.Context, error) bool

	mu   sync.Mutex // guards the fields below, and is held during a lookup
	done bool
	name string
	last account
}

// find looks up an account of the sandbox. The result is empty if the sandbox has no such account,
// or if nothing can run with it. find reads the file once for one name.
func (f *foundAccounts) find(ctx context.Context, name string) (account, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.done && f.name == name {
		return f.last, nil
	}
	a, err := findAccount(ctx, f.files, name)
	if brig.KindOf(err) == brig.NotFound && !f.causedByEnd(ctx, err) {
		err = nil // the sandbox has no such file
	}
	f.done, f.name, f.last = err == nil, name, a
	return a, err
}

// findAccount looks up an account in a sandbox's file, which may not exist.
func findAccount(ctx context.Context, files brig.Files, name string) (account, error) {
	_, r, err := files.Read(ctx, brig.Path{Name: passwdFile}, 0, int64(maxPasswd))
	if err != nil {
		return account{}, err
	}
	defer r.Close()
	a := parseAccount(r, name)
	_, err = io.Copy(io.Discard, r)
	return a, err
}

// parseAccount finds an account in the format of passwdFile, which is untrusted. name is the name of
// the account or its IDs, "UID:GID".
func parseAccount(r io.Reader, name string) account {
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		fields := strings.Split(lines.Text(), ":")
		if len(fields) != 7 || fields[0] != name && fields[2]+":"+fields[3] != name {
			continue
		}
		home := "/"
		if path.IsAbs(fields[5]) {
			home = path.Clean(fields[5])
		}
		env := map[string]string{"HOME": home, "USER": fields[0], "LOGNAME": fields[0]}
		if shell := fields[6]; path.IsAbs(shell) {
			env["SHELL"] = shell
		}
		if id, err := strconv.ParseUint(fields[2], 10, 32); err == nil && id == 0 {
			return account{user: "root", home: home, env: env}
		}
		ids := fields[2] + ":" + fields[3]
		if _, _, ok := wire.ParseAccount(ids); !ok {
			return account{} // the agent's own account, or one that gVisor cannot represent
		}
		return account{user: ids, home: home, env: env}
	}
	return account{}
}

// withAccount adds the variables that describe the account, unless the caller or the sandbox has set
// them.
func (a account) withAccount(requested, sandbox map[string]string) map[string]string {
	if a.env == nil {
		return requested
	}
	out := maps.Clone(a.env)
	for k := range sandbox {
		delete(out, k)
	}
	maps.Copy(out, requested)
	return out
}
