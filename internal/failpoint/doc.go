// Package failpoint names the moments at which a process may die, so that a
// test can make it die there. A point stands behind every commit and every
// effect on the host: what was done before it has happened, what comes after
// it has not.
//
// A binary that was built without the tag failpoints has none of it: Hit and
// Fail are empty and inlined. With the tag, the variable BRIG_FAILPOINTS says
// what happens where:
//
//	BRIG_FAILPOINTS='engine.made=crash;store.begun=error(3);shim.booted=sleep(50ms)'
//
// crash(3) is the third time that a process comes by. A value that begins with
// @ names a file with the same text, which is read anew each time, so that a
// test can change it under a server that runs. With BRIG_FAILPOINTS_MARKS, the
// path of a folder, a point acts once in all processes that share the folder,
// and leaves a file of its name there.
package failpoint

// Point is one moment, and what has just happened then.
type Point struct{ Name, After string }

// Points lists every point of the program. A test holds the list to the code:
// each is there exactly once.
var Points = []Point{
	{"gate.intent", "an operation's intent is on record"},
	{"engine.claimed", "a machine has been taken from the pool"},
	{"engine.registered", "a sandbox is on record as being created"},
	{"engine.made", "the provider has made a machine"},
	{"engine.bound", "a machine from the pool has been given its sandbox's properties"},
	{"engine.running", "a sandbox is on record as running"},
	{"engine.adopted", "a machine is in the engine's list"},
	{"run.performed", "a one-shot's program has ended"},
	{"run.discarded", "a one-shot's machine is being ended"},
	{"run.ended", "a one-shot's outcome is on record"},
	{"exec.recorded", "an execution is on record"},
	{"exec.ran", "an execution has ended"},
	{"exec.remembered", "an execution's end is on record"},
	{"lease.extended", "the shim has a new lease, the record has the old one"},
	{"context.opened", "an interpreter has started"},
	{"context.kept", "the shim keeps an interpreter"},
	{"context.dropped", "the shim has let go of an interpreter that is still alive"},
	{"code.ran", "code has run in an interpreter"},
	{"halt.recorded", "a sandbox is on record as stopping"},
	{"halt.stopped", "a sandbox's machine has ended, its record says stopping"},
	{"settle.recorded", "a sandbox is on record as ended"},
	{"remove.destroyed", "nothing is left of a machine but its record"},
	{"remove.deleted", "a sandbox's record is gone"},
	{"pool.made", "a machine has been made ahead of time"},
	{"pool.warmed", "an interpreter waits in it"},
	{"recover.one", "one record has been recovered"},
	{"recover.swept", "what nobody owned is gone"},
	{"store.begun", "a transaction has been written and not committed"},
	{"store.committed", "a transaction has been committed"},
	{"provider.folder", "a sandbox's folder is there and locked"},
	{"provider.ordered", "its order has been written"},
	{"provider.started", "its shim has been started"},
	{"provider.ready", "its shim has said that it runs"},
	{"provider.reordered", "the order of a machine from the pool has been rewritten"},
	{"provider.owned", "its shim does not depend on the server any more"},
	{"provider.stopped", "a shim has been told to end"},
	{"provider.emptied", "a machine and its cgroup are gone, its folder is there"},
	{"workspace.created", "a workspace has its name"},
	{"workspace.removed", "a workspace has no name any more, and what it had is there"},
	{"workspace.kept", "a commit has written a file's content"},
	{"workspace.large", "a commit has written the content of a large file"},
	{"workspace.captured", "a commit has written all contents"},
	{"workspace.manifest", "a commit has written its manifest"},
	{"workspace.committed", "a version of a workspace is there"},
	{"shim.limited", "the shim has made the cgroup"},
	{"shim.booted", "gVisor runs"},
	{"shim.listening", "the shim's socket is there"},
	{"shim.ready", "the shim has said that its sandbox runs"},
	{"shim.owned", "the shim was told that it does not depend on the server any more"},
	{"shim.kept", "the shim was given an interpreter to keep"},
	{"shim.gone", "the machine has ended"},
	{"shim.cleaned", "the machine's cgroup and files are gone"},
	{"shim.finished", "the shim has written down how it ended"},
}
