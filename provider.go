package brig

import (
	"context"
	"io"
	"net"
	"time"
)

// Provider creates isolated instances. It has no notion of tenants, quotas or
// audit: the engine admits a request before it calls a provider. The Spec that
// a provider receives is complete: all defaults are set, and Spec.Image is a
// digest.
type Provider interface {
	Capabilities() Capabilities
	// Create creates an instance and returns when it can run commands. The
	// instance enforces its own lease. After an error it leaves no resources.
	Create(ctx context.Context, id ID, spec Spec, lease time.Time) (Instance, error)
	// Recover returns an instance that an earlier process created. If the
	// instance has ended, its Done channel is closed. Recover returns NotFound
	// for an unknown handle.
	Recover(ctx context.Context, id ID, h Handle) (Instance, error)
	// Sweep removes all resources that this provider created and that belong to
	// no ID in known, and returns their number. It keeps the instances of other
	// live processes (runs of the command line).
	Sweep(ctx context.Context, known map[ID]bool) (int, error)
}

// Capabilities are the limits and areas that a provider can enforce, so that
// the engine can reject a request at admission.
type Capabilities struct {
	Name string
	// Isolation is the boundary between guest and host: "gvisor", "none".
	Isolation string
	// Uplinks is true if instances can have a network interface
	// (Instance.Uplink). Otherwise they have no connections and no egress rules.
	Uplinks bool
	// Enforces holds the level of each area on this host. An absent area is not
	// enforced.
	Enforces map[Area]Enforcement
	// Saves is true if instances can be saved, with their memory and without: the
	// provider is then a Saver.
	Saves bool
	// BuildRights is true if instances can have Spec.BuildRights. Otherwise Create returns
	// NoBuildRights for such a Spec.
	BuildRights bool
	// Volumes is true if instances can mount volumes (Spec.Volumes). Otherwise Create returns
	// NoVolumes for such a Spec.
	Volumes bool
	// RunsOnly is true if the provider has no instances and only runs programs:
	// Create returns Unimplemented, and the provider is a Runner.
	RunsOnly bool
}

// NoBuildRights returns the error of a provider that cannot create instances with
// Spec.BuildRights.
func NoBuildRights(provider string) *Error {
	return Errorf(Unimplemented, "the provider %s cannot build templates: its sandboxes give root no rights of a build", provider).
		WithHint("build templates with the provider gvisor")
}

// NoVolumes returns the error of a provider whose instances cannot mount volumes.
func NoVolumes(provider string) *Error {
	err := Errorf(Unimplemented, "the provider %s cannot mount volumes", provider)
	err.Field = "volumes"
	return err.WithHint("use the provider gvisor with a server that runs as root (brig capabilities), or leave out volumes")
}

// Runner is a Provider that runs whole programs: a remote service creates the
// sandbox, runs one program in it and destroys it.
type Runner interface {
	// Run runs a program to its end under an ID that the caller chose. The
	// program has every default; its image is unchanged from the request. Writers
	// receive output as it arrives. If CanRetryElsewhere reports true for an error, but
	// part of the program may have run, the error's Retry is RetryContained.
	Run(ctx context.Context, id ID, p Program, sio IO) (*Outcome, error)
}

// SaveID names a save of a Saver.
type SaveID string

// Saver is a Provider that can save instances: it writes their memory and files to
// disk, and creates instances from such a save.
type Saver interface {
	// CheckSave returns FailedPrecondition if an instance cannot currently be saved
	// with its memory. The error names the program that prevents the save. An instance with
	// Spec.BuildRights can never be saved with its memory, because copies would have the rights.
	// CheckSave has no side effects.
	CheckSave(ctx context.Context, in Instance) error
	// Save saves an instance, and replaces an older save with the same ID. Concurrent calls to
	// the instance fail. Unless o.Stay is set, the instance has ended with the reason Saved when
	// Save returns. After an error the instance continues, and no new save exists.
	Save(ctx context.Context, in Instance, to SaveID, o SaveOptions) (*Save, error)
	// GetSave returns a complete save, or NotFound.
	GetSave(ctx context.Context, id SaveID) (*Save, error)
	// Restore is like Create, but the instance continues from a save, with its programs, memory
	// and files. The ID may be that of the saved instance, if the latter has ended. Restore
	// returns FailedPrecondition if the save is packed, or if image, limits or provider differ
	// from those of the save; the error names the difference. Restore keeps the save. From a save
	// without memory, Restore boots an instance with the saved files, as Create does, with the
	// main program of spec, if any. In this case, only the image must match, and the disk must
	// not be smaller.
	Restore(ctx context.Context, from SaveID, id ID, spec Spec, lease time.Time) (Instance, error)
	// RemoveSave removes a save. It succeeds if the save does not exist.
	RemoveSave(ctx context.Context, id SaveID) error
	// Pack compresses a save, encrypts it with a key of 32 bytes, and removes the unencrypted
	// files. It works at low priority. After an error, even if ctx ends, the save is unchanged.
	// For a save that is already packed, Pack only removes the files of Unpack.
	Pack(ctx context.Context, id SaveID, key []byte) (*Save, error)
	// Unpack decrypts a packed save for calls of Restore, until Pack or RemoveSave. It returns
	// FailedPrecondition, and leaves the save unchanged, if the save was modified or was packed
	// with another key. It does nothing for a save that is not packed. Pack and Unpack must not
	// run concurrently with other calls for the same save.
	Unpack(ctx context.Context, id SaveID, key []byte) error
}

// Parker is implemented by an Instance whose interpreters may hold descriptors of
// the host. Such descriptors prevent a save.
type Parker interface {
	// Park replaces the host's descriptors of an interpreter by descriptors inside
	// the instance, and returns the process that communicates over them. The caller
	// then closes p, and calls Keep for the new process. The function request must
	// send the interpreter the request "park" with a directory of the guest. Park
	// returns p itself if the interpreter has no descriptors of the host. After an
	// error p is unchanged. The error is NotFound if the interpreter has ended.
	Park(ctx context.Context, p Process, request func(dir string) error) (Process, error)
}

// SaveOptions are the options of a save.
type SaveOptions struct {
	// Stay makes the instance continue after the save.
	Stay bool
	// FilesOnly saves the files without the memory. No program prevents such a save, and a
	// restore boots an instance with the files. The contents of tmpfs mounts are not saved.
	FilesOnly bool
}

// LogFollower is implemented by an Instance whose log can be followed while it
// grows.
type LogFollower interface {
	// FollowLog opens the log like Logs, or like TimedLogs if timed is set. After io.EOF, the
	// reader can be read again and returns the data that was added in the meantime. It remains
	// usable across a save of the instance and after its end.
	FollowLog(ctx context.Context, timed bool) (io.ReadCloser, error)
}

// Save is a saved instance.
type Save struct {
	At     time.Time
	Bytes  int64 // disk space used, without the files of Unpack
	Packed bool
	// FilesOnly means that the save has no memory.
	FilesOnly bool
}

// Imager is a Provider that has its own images instead of the server's.
type Imager interface {
	// Image returns the image that a Spec refers to, or NotFound.
	Image(ctx context.Context, ref string) (*Image, error)
}

// Checker is a Provider that may be unreachable.
type Checker interface {
	// Check reports, at little cost, whether the provider can be used now. It
	// returns the error that a caller would get.
	Check(ctx context.Context) error
}

// Instance is one running sandbox of a provider.
type Instance interface {
	InstanceStatus
	InstanceLifecycle
	InstanceExec
	InstanceFiles
	InstanceNetwork
	InstanceLogs
}

// InstanceStatus reports on an instance.
type InstanceStatus interface {
	Handle() Handle
	// Notes are remarks for the caller about this instance's limits.
	Notes() []string
	// Enforced reports the enforcement level of each area on this instance, as
	// observed by the host, never as claimed by the guest. A level never
	// exceeds the level in Capabilities.
	Enforced(ctx context.Context) (map[Area]Enforcement, error)
	// Usage returns the resources that the instance has used, or Unimplemented if
	// the provider does not measure them.
	Usage(ctx context.Context) (*Usage, error)
	// Done is closed when the instance has ended, for any reason.
	Done() <-chan struct{}
	// Exit describes how the instance ended; nil before Done is closed.
	Exit() *Exit
}

// Refuser is an Instance that counts denials by its kernel.
type Refuser interface {
	// Refusals returns the current counts. After the instance has ended it returns
	// the final counts, even after Destroy. It returns nil if this instance has no
	// counters. A hostile program can make the counts as large as it likes, but not
	// smaller.
	Refusals(ctx context.Context) (*Refusals, error)
}

// DiskMeter is an Instance that measures the disk space of the files that it wrote. It is
// separate from Usage, because Usage is called at the end of each run and must be fast.
type DiskMeter interface {
	// DiskUsed returns the disk space in bytes, or -1 if it is unknown.
	DiskUsed(ctx context.Context) int64
}

// InstanceLifecycle changes and ends an instance.
type InstanceLifecycle interface {
	// Bind turns an instance that was created with Spec.Blank into the one that
	// spec describes. Image, memory, CPUs and disk do not change; all other
	// fields and the lease are set from the arguments. An ephemeral instance
	// may keep its lease, because its creator ends it.
	Bind(ctx context.Context, spec Spec, lease time.Time) error
	// StartMain starts the main program of an instance that was created with
	// Spec.Held. If linger is set, the instance outlives the program until Stop;
	// if Stop's reason is Exited, the instance ends with the program's exit code.
	// Further calls have no effect.
	StartMain(ctx context.Context, linger bool) error
	// WaitMain waits until the main program of a lingering instance has ended. It
	// returns an error if the instance ends first.
	WaitMain(ctx context.Context) error
	// Extend sets the end of the lease.
	Extend(ctx context.Context, lease time.Time) error
	// Pause suspends every program of the instance until Resume.
	Pause(ctx context.Context) error
	Resume(ctx context.Context) error
	// Stop sends SIGTERM to the instance's programs, waits for grace and ends the
	// instance. If grace is 0, it kills immediately. It returns when the instance
	// has ended.
	Stop(ctx context.Context, grace time.Duration, reason ExitReason) error
	// Destroy ends the instance and removes all its resources on the host.
	Destroy(ctx context.Context) error
}

// InstanceExec runs commands in an instance.
type InstanceExec interface {
	// Exec runs one command under an ID that the caller chose and streams its
	// output to sio, whose writers are not nil. If ctx ends, the process is
	// killed unless cmd.Survive. If the instance ends first, Exec returns a
	// result with OOMKilled, or FailedPrecondition.
	Exec(ctx context.Context, id string, cmd Command, sio IO) (*Result, error)
	// Execs returns the executions that the instance itself has recorded.
	Execs(ctx context.Context) ([]*Execution, error)
	// Start starts one command under an ID that the caller chose and returns
	// without waiting for its end. It ignores the command's timeout.
	Start(ctx context.Context, id string, cmd Command, s Streams) (Process, error)
	// Keep makes a process from Start outlive this server, and stores a note
	// under the process's ID. An empty note reverts this. KeptProcesses returns these
	// processes.
	Keep(ctx context.Context, p Process, note []byte) error
	KeptProcesses(ctx context.Context) ([]KeptProcess, error)
}

// InstanceFiles reads and writes files of an instance.
type InstanceFiles interface {
	// Put writes files below dir as the command's user.
	Put(ctx context.Context, dir string, files []File) error
	// Collect reads the artifacts in dir. skipped lists the artifacts that
	// exceed the limits on number or size.
	Collect(ctx context.Context, dir string) (files []File, skipped []string, err error)
	// Trees transfers directories.
	Trees
	// Files returns an interface to single files and directories.
	Files() Files
}

// InstanceNetwork connects an instance.
type InstanceNetwork interface {
	// Dial connects to a port of the instance; see GuestService.Dial.
	Dial(ctx context.Context, port int) (net.Conn, error)
	// Uplink attaches a network interface with the addresses of UplinkNetwork
	// to the instance and returns the host's end. A second Uplink replaces the
	// first. The instance trusts the certificate authority (PEM certificates;
	// may be empty) in addition to those of its image. The authority is added
	// to /etc/ssl/certs/ca-certificates.crt, and is also stored separately in
	// brig.pem in the same directory. Uplink returns Unimplemented if the
	// provider has no network interfaces, and FailedPrecondition if this
	// instance's Spec had no rules.
	Uplink(ctx context.Context, authority []byte) (Uplink, error)
}

// InstanceLogs reads and writes an instance's log.
type InstanceLogs interface {
	// Logs opens the log of the main program and of executions. It also works
	// after the instance's end, until Destroy.
	Logs(ctx context.Context) (io.ReadCloser, error)
	// TimedLogs is like Logs, with a LogTime prefix on every line.
	TimedLogs(ctx context.Context) (io.ReadCloser, error)
	// Log appends the output of an execution.
	Log(p []byte) error
}

// Handle allows a provider to find an instance after a restart. It is opaque to
// all other packages.
type Handle struct {
	Provider string
	Version  int
	State    []byte
}

// Setting is a value that an administrator can change while a server runs.
type Setting struct {
	// Name is matched exactly: "sandbox.e2b" is not "sandbox.e2b2".
	Name string
	// Type is "string" or "json".
	Type string
	// Value may have any length.
	Value   []byte
	Updated time.Time
}

// The names of settings.
const (
	// SettingProvider is the ID of the active provider.
	SettingProvider = "sandbox.provider_type"
	// settingConfig is the prefix of the providers' configurations, followed by
	// the ID.
	settingConfig = "sandbox."
	// settingTerms is the prefix of the providers' terms, followed by the ID.
	settingTerms = "terms."
	// settingRouting is the prefix of the tenants' routings, followed by the
	// tenant.
	settingRouting = "routing."
)

// SettingConfig returns the name of a provider's configuration.
func SettingConfig(id string) string { return settingConfig + id }

// SettingTerms returns the name of a provider's Terms.
func SettingTerms(id string) string { return settingTerms + id }

// SettingRouting returns the name of a tenant's Routing, or of the default for
// "".
func SettingRouting(tenant string) string { return settingRouting + tenant }
