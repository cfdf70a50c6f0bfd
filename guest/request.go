package guest

import (
	"maps"
	"slices"
	"strconv"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/guest/wire"
)

// DefaultDir is the working directory of commands that do not specify one.
const DefaultDir = "/workspace"

// DefaultPath is the default PATH of processes.
const DefaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:" + wire.ProgramsDir

// user is one of the sandbox's two standard accounts, or another account by its IDs.
type user struct {
	uid, gid   uint32
	name, home string
}

// newUser returns the account that name selects: "root", the IDs of an account, or else "user".
func newUser(name string) user {
	if name == "root" {
		return user{0, 0, "root", "/root"}
	}
	u := user{1000, 1000, "user", "/home/user"}
	if uid, gid, ok := wire.ParseAccount(name); ok {
		u.uid, u.gid, u.name = uid, gid, strconv.Itoa(int(uid))
	}
	return u
}

// newExec converts a command to its form in the agent's protocol.
func (g *Guest) newExec(id string, cmd brig.Command, sio brig.IO) *wire.Exec {
	u := newUser(cmd.User)
	dir := cmd.Dir
	if dir == "" {
		dir = DefaultDir
	}
	e := &wire.Exec{
		ID: id, Argv: cmd.Argv, Shell: cmd.Shell, Dir: dir, UID: u.uid, GID: u.gid,
		Env:       mergeEnv(u, g.Env, cmd.Env),
		Processes: uint64(g.Limits.Processes), OpenFiles: uint64(g.Limits.OpenFiles),
		Keep: kept, Result: sio.Result != nil,
	}
	if cmd.Timeout > 0 {
		e.TimeoutMS = (cmd.Timeout + wire.TimeoutSlack).Milliseconds()
	}
	return e
}

// mergeEnv merges the default environment and the given layers, in a stable
// order. Later layers take precedence.
func mergeEnv(u user, layers ...map[string]string) []string {
	env := map[string]string{
		"PATH": DefaultPath,
		"HOME": u.home, "USER": u.name, "LOGNAME": u.name,
		"SHELL": "/bin/sh",
	}
	for _, l := range layers {
		maps.Copy(env, l)
	}
	out := make([]string, 0, len(env))
	for _, k := range slices.Sorted(maps.Keys(env)) {
		out = append(out, k+"="+env[k])
	}
	return out
}

// SentryThreads returns the maximum number of host threads for a sandbox of gVisor with the given
// process limit. The maximum is far above RLIMIT_NPROC, because the sentry crashes when it reaches
// the maximum: a guest's thread may need three host threads, RLIMIT_NPROC holds for each of up to
// four users, and the sentry has its own threads.
func SentryThreads(processes int) int64 { return int64(10*processes + 512) }
