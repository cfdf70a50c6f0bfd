// Package failpoint names the points at which a test can make a process crash.
// A point follows every commit and every effect on the host: the preceding step
// has completed, and the next has not started.
//
// Without the build tag failpoints, Hit and Fail are empty and inlined. With
// the tag, the variable BRIG_FAILPOINTS sets the action at each point:
//
//	BRIG_FAILPOINTS='engine.made=crash;store.begun=error(3);shim.booted=sleep(50ms)'
//
// With crash(3), the process crashes when it passes the point for the third time. A value that
// begins with @ names a file with such rules. The package reads the file each time, so that a
// test can change it while a server runs. BRIG_FAILPOINTS_MARKS is the path of a directory. If
// it is set, each point acts once across all processes that share the directory, and creates a
// file with its name there.
package failpoint

// Point is one failpoint. After describes the event that has just happened.
type Point struct{ Name, After string }

// Points lists every point of the program. A test checks that each occurs in
// the code exactly once.
var Points = []Point{
	{"gate.intent", "an operation's intent is on record"},
	{"engine.claimed", "a machine has been taken from the pool"},
	{"engine.registered", "a sandbox is on record as being created"},
	{"engine.made", "the provider has made a machine"},
	{"engine.bound", "a machine from the pool has been given its sandbox's properties"},
	{"engine.running", "a sandbox is on record as running"},
	{"engine.adopted", "a machine is in the engine's list"},
	{"run.performed", "a one-shot's program has ended"},
	{"run.ended", "a one-shot's outcome is on record"},
	{"run.discarded", "a one-shot's machine is being ended"},
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
	{"park.begun", "a server is about to park an interpreter"},
	{"park.held", "the agent holds the descriptors of a parked interpreter"},
	{"park.kept", "the shim knows that an interpreter is parked"},
	{"pause.detached", "the server uses a sandbox that is being paused no longer"},
	{"save.released", "the agent has closed its connections for a save"},
	{"save.written", "gVisor has written a sandbox's state and memory"},
	{"save.sealed", "a save is complete and has its name"},
	{"save.stored", "the server knows the result of a save"},
	{"pause.saved", "a save has succeeded or failed, and the state on record is running"},
	{"pause.recorded", "a sandbox is on record as paused"},
	{"pause.ended", "a paused sandbox is on record as ended, and its save exists"},
	{"pack.key", "the key of a save that is being packed is on record"},
	{"pack.written", "a packed save is on disk without its name"},
	{"pack.renamed", "a packed save has its name, and the plain files exist"},
	{"pack.removed", "the plain files of a packed save are gone"},
	{"pack.recorded", "the size of a packed save is on record"},
	{"resume.unpacked", "a packed save has been unpacked for a resume"},
	{"resume.restored", "an instance was restored, and the state on record is paused"},
	{"resume.booted", "a sandbox without memory has booted with its start command, and the state on record is paused"},
	{"resume.recorded", "a restored sandbox is on record as running"},
	{"resume.removed", "the save of a resumed sandbox has been removed"},
	{"fork.saved", "a sandbox that is being forked is saved and continues"},
	{"fork.recorded", "a copy is on record as being created"},
	{"fork.restored", "a copy was restored"},
	{"fork.running", "a copy is on record as running"},
	{"fork.paused", "a paused copy is on record as being created"},
	{"fork.removed", "the save of a fork has been removed"},
	{"boot.made", "an instance in which a template boots was created"},
	{"boot.saved", "a template that has booted is saved"},
	{"boot.restored", "a copy of a booted template was restored"},
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
