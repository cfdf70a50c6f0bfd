package v1

import (
	"time"

	"github.com/brig-run/brig"
)

// Limits are the resource limits of a sandbox. Missing fields have their
// defaults.
type Limits struct {
	Memory    Size    `json:"memory,omitempty" doc:"bytes of memory, including files in /tmp and /dev/shm" minimum:"1"`
	CPUs      float64 `json:"cpus,omitempty" doc:"number of processors, for example 0.5" minimum:"0.01"`
	Processes int     `json:"processes,omitempty" doc:"processes and threads at a time, per user" minimum:"1"`
	OpenFiles int     `json:"open_files,omitempty" doc:"open files per process" minimum:"1"`
	Disk      Size    `json:"disk,omitempty" doc:"writable bytes of the root file system" minimum:"1"`
	Output    Size    `json:"output,omitempty" doc:"stored bytes of each output stream of an execution" minimum:"1"`
}

// Spec is the request for a sandbox. Command or shell is the sandbox's main
// program, and the sandbox ends with that program. user, cwd, command_env and
// timeout_ms apply to the main program.
type Spec struct {
	Name       string            `json:"name,omitempty" doc:"1 to 63 characters of a-z, 0-9 and -, unique among the tenant's sandboxes; default: a generated name" pattern:"^[a-z0-9][a-z0-9-]{0,62}$" example:"worker-1"`
	Image      string            `json:"image,omitempty" doc:"name or digest of an image; default host" minLength:"1" maxLength:"512"`
	Template   string            `json:"template,omitempty" doc:"name of a template, instead of image; one that the tenant has built can have a tag, as web:v1" minLength:"1" maxLength:"192"`
	Entrypoint bool              `json:"entrypoint,omitempty" doc:"run the image's entrypoint as the main program, with command or the image's own command as its arguments"`
	Command    []string          `json:"command,omitempty" doc:"main program and its arguments, without a shell; without one, the sandbox waits for commands" minItems:"1" maxItems:"10000" items:"^[^\\x00]*$"`
	Shell      string            `json:"shell,omitempty" doc:"main program as a script for the image's shell" minLength:"1" pattern:"^[^\\x00]*$"`
	Env        map[string]string `json:"env,omitempty" doc:"environment variables of all commands" maxItems:"1000" keys:"^[^=\\x00]+$" items:"^[^\\x00]*$"`
	CommandEnv map[string]string `json:"command_env,omitempty" doc:"environment variables of the main program, which override env" maxItems:"1000" keys:"^[^=\\x00]+$" items:"^[^\\x00]*$"`
	Labels     map[string]string `json:"labels,omitempty" doc:"labels, for filters and usage" maxItems:"64" keys:"^[^\\x00\\n]{1,128}$" items:"^[^\\x00\\n]*$"`
	Limits     *Limits           `json:"limits,omitempty"`
	Egress     *Egress           `json:"egress,omitempty" doc:"egress rules; default: no network access"`
	Secrets    []SecretUse       `json:"secrets,omitempty" doc:"secrets for the sandbox's commands" maxItems:"50"`
	Workspace  *WorkspaceUse     `json:"workspace,omitempty" doc:"workspace at /workspace"`
	Volumes    []VolumeMount     `json:"volumes,omitempty" doc:"volumes to mount" maxItems:"16"`
	Require    map[string]string `json:"require,omitempty" doc:"minimum enforcement by area, for example {\"memory\": \"boundary\"}; otherwise the creation is rejected" keys:"^(?:isolation|memory|cpus|processes|open_files|disk|output|time|egress|secrets|workspace)$" items:"^(?:none|gaps|boundary)$"`
	Placement  *Placement        `json:"placement,omitempty" doc:"selects the provider; default: the tenant's routing"`
	TTLMS      int64             `json:"ttl_ms,omitempty" doc:"time without use after which the sandbox ends" minimum:"0" maximum:"9223372036854"`
	FixedLease bool              `json:"fixed_lease,omitempty" doc:"use does not renew the lease"`
	FreezeMS   int64             `json:"freeze_after_ms,omitempty" doc:"time without use after which the sandbox is frozen until its next use; default: never" minimum:"0" maximum:"9223372036854"`
	Pausable   bool              `json:"pausable,omitempty" doc:"the sandbox can be paused while processes run in it, and not only contexts; their messages pass through one more program"`
	PauseAtEnd bool              `json:"pause_at_end,omitempty" doc:"the sandbox is paused at the end of its lease, instead of ended"`
	PauseMS    int64             `json:"pause_after_ms,omitempty" doc:"time without use after which the sandbox is paused until its next use, at least 1000 and less than ttl_ms; default: never" minimum:"0" maximum:"9223372036854"`
	PauseFiles bool              `json:"pause_files_only,omitempty" doc:"pause_at_end and pause_after_ms keep only the files, like files_only of a pause; needs one of them"`
	User       string            `json:"user,omitempty" doc:"user (the default), root, or the IDs of another user and its group, such as 1001:1001"`
	Cwd        string            `json:"cwd,omitempty" doc:"working directory; default /workspace" maxLength:"4096" pattern:"^/[^\\x00]*$"`
	TimeoutMS  int64             `json:"timeout_ms,omitempty" doc:"wall time limit of the main program" minimum:"0" maximum:"9223372036854"`
	// DefaultUser and DefaultCwd apply to every command, unlike user and cwd.
	DefaultUser string `json:"default_user,omitempty" doc:"default user of commands, as for user; default: the template's, or user"`
	DefaultCwd  string `json:"default_cwd,omitempty" doc:"default working directory of commands; default: the template's, the image's, or /workspace" maxLength:"4096" pattern:"^/[^\\x00]*$"`
}

// Sandbox is the public description of a sandbox.
type Sandbox struct {
	ID       string `json:"id"`
	ScopedID string `json:"scoped_id" doc:"{tenant}:{name}:{id}; works wherever a name does"`
	Tenant   string `json:"tenant"`
	State    string `json:"state"`
	Spec
	Digest   string    `json:"digest" doc:"digest of the image at the creation"`
	Provider string    `json:"provider"`
	Route    *Route    `json:"route,omitempty" doc:"the provider and the reason for it"`
	Created  time.Time `json:"created"`
	Expires  time.Time `json:"expires,omitzero" doc:"end of the lease"`
	Ended    time.Time `json:"ended,omitzero"`
	Exit     *Exit     `json:"exit,omitempty" doc:"how the sandbox ended"`
	Pause    *Pause    `json:"pause,omitempty" doc:"of a paused sandbox; expires is then when it ends unless it is resumed"`
	Origin   string    `json:"origin,omitempty" doc:"ID of the sandbox that this one was forked from"`
	Notes    []string  `json:"notes,omitempty" doc:"notes, for example on limits that this machine enforces in another way"`
	// Enforcement was verified on this sandbox if the sandbox has been
	// attested, otherwise on the last sandbox with the same image.
	Enforcement map[string]Enforcement `json:"enforcement,omitempty" doc:"verified enforcement by area, from a sandbox of this image; attest verifies this very sandbox"`

	Pool string `json:"pool,omitempty" doc:"hit if a pooled sandbox was ready, otherwise miss"`
}

// Exit describes how a sandbox ended.
type Exit struct {
	Code      int       `json:"code"`
	Reason    string    `json:"reason"`
	OOMKilled bool      `json:"oom_killed"`
	At        time.Time `json:"at"`
}

// SandboxUsage is the resource usage of a running sandbox.
type SandboxUsage struct {
	At       time.Time `json:"at"`
	CPUMS    float64   `json:"cpu_ms" doc:"processor time since the sandbox started; the difference of two responses divided by their distance is the load"`
	Memory   int64     `json:"memory" doc:"bytes, as the host counts them"`
	Cache    int64     `json:"cache" doc:"the part of memory that the host can reclaim"`
	Disk     *int64    `json:"disk,omitempty" doc:"bytes of disk space of the files that the sandbox wrote; missing if the provider does not measure it"`
	Sent     int64     `json:"sent" doc:"bytes sent through the network since its rules were attached, or since the server started; 0 without egress rules"`
	Received int64     `json:"received" doc:"bytes received, as sent"`
}

// Pause describes a paused sandbox.
type Pause struct {
	At     time.Time `json:"at"`
	Bytes  int64     `json:"bytes" doc:"the disk space that its memory and files take"`
	LeftMS int64     `json:"left_ms" doc:"the rest of its lease, which continues when it is resumed"`
	Files  bool      `json:"files_only,omitempty" doc:"only its files are kept, and a resume boots it again"`
}

// Sandboxes is one page of a list.
type Sandboxes struct {
	Sandboxes  []Sandbox `json:"sandboxes" nullable:"false"`
	NextCursor string    `json:"next_cursor" doc:"cursor of the next page; empty on the last page"`
}

// StopRequest is the request to end the programs of a sandbox.
type StopRequest struct {
	GraceMS int64 `json:"grace_ms,omitempty" doc:"time until the programs are killed" minimum:"0" maximum:"600000"`
}

// KillRequest is the request to kill a sandbox. It has no fields.
type KillRequest struct{}

// PauseRequest is the request to pause a sandbox.
type PauseRequest struct {
	FilesOnly bool `json:"files_only,omitempty" doc:"keep only the files, and not the memory: no program prevents that; contexts and processes end, and a resume boots the sandbox again with its files, main program and template's start command, also on another build of the server"`
}

// ResumeRequest is the request to resume a paused sandbox. It has no fields.
type ResumeRequest struct{}

// ForkRequest is the request to copy a sandbox.
type ForkRequest struct {
	Name    string            `json:"name,omitempty" doc:"name of the copy, if there is one; default: a generated name" pattern:"^[a-z0-9][a-z0-9-]{0,62}$" example:"base"`
	Paused  bool              `json:"paused,omitempty" doc:"the copy is paused: it takes only disk space, and can be forked any number of times without being resumed"`
	Count   int               `json:"count,omitempty" doc:"number of copies; default 1" minimum:"0" maximum:"32"`
	Labels  map[string]string `json:"labels,omitempty" doc:"labels of each copy; default: those of the original" maxItems:"64" keys:"^[^\\x00\\n]{1,128}$" items:"^[^\\x00\\n]*$"`
	TTLMS   int64             `json:"ttl_ms,omitempty" doc:"lease of each copy; default: that of the original" minimum:"0" maximum:"9223372036854"`
	Env     map[string]string `json:"env,omitempty" doc:"environment variables in addition to those of the original; programs that are copied keep theirs" maxItems:"1000" keys:"^[^=\\x00]+$" items:"^[^\\x00]*$"`
	Egress  *Egress           `json:"egress,omitempty" doc:"egress rules of each copy; default: those of the original"`
	Limits  *Limits           `json:"limits,omitempty" doc:"limits of each copy, if the original is paused with files_only; default: those of the original"`
	Volumes []VolumeMount     `json:"volumes,omitzero" doc:"volumes to mount instead of those of the original, if it is paused with files_only; default: those of the original" maxItems:"16"`
	// PauseAtEnd and PauseFiles are replaced together. PauseFiles also applies to pauses without use.
	PauseAtEnd  *bool  `json:"pause_at_end,omitempty" doc:"each copy is paused at the end of its lease, instead of ended; default: as the original"`
	PauseFiles  bool   `json:"pause_files_only,omitempty" doc:"with pause_at_end: it and pauses without use keep only the files"`
	DefaultUser string `json:"default_user,omitempty" doc:"default user of commands; default: that of the original"`
	DefaultCwd  string `json:"default_cwd,omitempty" doc:"default working directory of commands; default: that of the original" maxLength:"4096" pattern:"^/[^\\x00]*$"`
}

// Copies are the sandboxes that a fork created.
type Copies struct {
	Sandboxes []Sandbox `json:"sandboxes" nullable:"false"`
}

// ExtendRequest is the request to move the end of the lease.
type ExtendRequest struct {
	TTLMS int64 `json:"ttl_ms,omitempty" doc:"time from now until the lease ends" minimum:"0" maximum:"9223372036854"`
}

// FromLimits converts limits to their wire type. It returns nil if none is set.
func FromLimits(l brig.Limits) *Limits {
	if l == (brig.Limits{}) {
		return nil
	}
	return &Limits{
		Memory: Size(l.Memory), CPUs: l.CPUs, Processes: l.Processes,
		OpenFiles: l.OpenFiles, Disk: Size(l.Disk), Output: Size(l.Output),
	}
}

// Domain converts l to its domain type.
func (l *Limits) Domain() brig.Limits {
	if l == nil {
		return brig.Limits{}
	}
	return brig.Limits{
		Memory: int64(l.Memory), CPUs: l.CPUs, Processes: l.Processes,
		OpenFiles: l.OpenFiles, Disk: int64(l.Disk), Output: int64(l.Output),
	}
}

// FromSpec converts s to its wire type.
func FromSpec(s brig.Spec) Spec {
	out := Spec{
		Template: s.Template, Entrypoint: s.Entrypoint, DefaultUser: s.User, DefaultCwd: s.Dir,
		Name: s.Name, Image: s.Image, Env: s.Env, Labels: s.Labels, Limits: FromLimits(s.Limits), TTLMS: FromDuration(s.TTL),
		FixedLease: s.FixedLease, FreezeMS: FromDuration(s.FreezeAfter), Pausable: s.Pausable, PauseAtEnd: s.PauseAtEnd, PauseMS: FromDuration(s.PauseAfter), PauseFiles: s.PauseFilesOnly,
		Egress: FromEgress(s.Egress), Secrets: FromSecrets(s.Secrets), Workspace: FromWorkspaceUse(s.Workspace), Volumes: FromVolumeMounts(s.Volumes),
		Require: FromRequirement(s.Require), Placement: FromPlacement(s.Placement),
	}
	if c := s.Command; c != nil {
		out.Command, out.Shell, out.CommandEnv = c.Argv, c.Shell, c.Env
		out.Cwd, out.User, out.TimeoutMS = c.Dir, c.User, FromDuration(c.Timeout)
	}
	return out
}

// Check returns an error if s is not a valid request.
func (s Spec) Check() error {
	if err := CheckDuration("ttl_ms", s.TTLMS); err != nil {
		return err
	}
	if err := CheckDuration("freeze_after_ms", s.FreezeMS); err != nil {
		return err
	}
	if err := CheckDuration("pause_after_ms", s.PauseMS); err != nil {
		return err
	}
	if s.hasProgram() {
		return CheckDuration("timeout_ms", s.TimeoutMS)
	}
	for _, f := range []struct {
		name    string
		present bool
	}{
		{"user", s.User != ""}, {"cwd", s.Cwd != ""},
		{"timeout_ms", s.TimeoutMS != 0}, {"command_env", s.CommandEnv != nil},
	} {
		if f.present {
			return brig.InvalidField(f.name, "is for the main program, which this sandbox does not have").
				WithHint("give command or shell, or say it with each exec")
		}
	}
	return nil
}

func (s Spec) hasProgram() bool { return s.Command != nil || s.Shell != "" || s.Entrypoint }

// Domain converts s to its domain type.
func (s Spec) Domain() brig.Spec {
	out := brig.Spec{
		Template: s.Template, Entrypoint: s.Entrypoint, User: s.DefaultUser, Dir: s.DefaultCwd,
		Name: s.Name, Image: s.Image, Env: s.Env, Labels: s.Labels, Limits: s.Limits.Domain(), TTL: ToDuration(s.TTLMS),
		FixedLease: s.FixedLease, FreezeAfter: ToDuration(s.FreezeMS), Pausable: s.Pausable, PauseAtEnd: s.PauseAtEnd, PauseAfter: ToDuration(s.PauseMS), PauseFilesOnly: s.PauseFiles,
		Egress: s.Egress.Domain(), Secrets: ToSecrets(s.Secrets), Workspace: s.Workspace.Domain(), Volumes: ToVolumeMounts(s.Volumes),
		Require: ToRequirement(s.Require), Placement: ToPlacement(s.Placement),
	}
	if s.hasProgram() {
		out.Command = &brig.Command{
			Argv: s.Command, Shell: s.Shell, Env: s.CommandEnv, Dir: s.Cwd, User: s.User, Timeout: ToDuration(s.TimeoutMS),
		}
	}
	return out
}

// FromForkSpec converts o to its wire type.
func FromForkSpec(o brig.ForkSpec) ForkRequest {
	out := ForkRequest{
		Name: o.Name, Paused: o.Paused, Count: o.Count, Labels: o.Labels, TTLMS: FromDuration(o.TTL), Env: o.Env,
		Limits: FromLimits(o.Limits), Volumes: FromVolumeMounts(o.Volumes), DefaultUser: o.User, DefaultCwd: o.Dir,
	}
	if e := o.Egress; e != nil {
		if out.Egress = FromEgress(*e); out.Egress == nil {
			out.Egress = &Egress{Rules: []EgressRule{}}
		}
	}
	if o.AtEnd != nil {
		out.PauseAtEnd, out.PauseFiles = &o.AtEnd.Pause, o.AtEnd.FilesOnly
	}
	return out
}

// Domain converts f to its domain type.
func (f ForkRequest) Domain() brig.ForkSpec {
	out := brig.ForkSpec{
		Name: f.Name, Paused: f.Paused, Count: f.Count, Labels: f.Labels, TTL: ToDuration(f.TTLMS), Env: f.Env,
		Limits: f.Limits.Domain(), Volumes: ToVolumeMounts(f.Volumes), User: f.DefaultUser, Dir: f.DefaultCwd,
	}
	if f.Egress != nil {
		rules := f.Egress.Domain()
		out.Egress = &rules
	}
	if f.PauseAtEnd != nil {
		out.AtEnd = &brig.AtEnd{Pause: *f.PauseAtEnd, FilesOnly: f.PauseFiles}
	}
	return out
}

// FromSandbox converts s to its wire type.
func FromSandbox(s *brig.Sandbox) Sandbox {
	out := Sandbox{
		ID: string(s.ID), ScopedID: s.ScopedID(), Tenant: s.Tenant, State: string(s.State), Spec: FromSpec(s.Spec), Digest: s.Digest,
		Provider: s.Provider, Route: FromRoute(s.Route), Created: s.Created, Expires: s.Expires, Ended: s.Ended, Origin: string(s.Origin), Notes: s.Notes, Pool: string(s.Pool),
		Enforcement: FromEnforcement(s.Enforcement),
	}
	if p := s.Pause; p != nil {
		out.Pause = &Pause{At: p.At, Bytes: p.Bytes, LeftMS: FromDuration(p.Left), Files: p.FilesOnly}
	}
	if e := s.Exit; e != nil {
		out.Exit = &Exit{Code: e.Code, Reason: string(e.Reason), OOMKilled: e.OOMKilled, At: e.At}
	}
	return out
}

// Domain converts s to its domain type.
func (s Sandbox) Domain() *brig.Sandbox {
	out := &brig.Sandbox{
		ID: brig.ID(s.ID), Tenant: s.Tenant, State: brig.State(s.State), Spec: s.Spec.Domain(), Provider: s.Provider, Digest: s.Digest,
		Created: s.Created, Expires: s.Expires, Ended: s.Ended, Origin: brig.ID(s.Origin), Notes: s.Notes, Pool: brig.PoolUse(s.Pool), Route: ToRoute(s.Route),
		Enforcement: ToEnforcement(s.Enforcement),
	}
	if p := s.Pause; p != nil {
		out.Pause = &brig.Pause{At: p.At, Bytes: p.Bytes, Left: ToDuration(p.LeftMS), FilesOnly: p.Files}
	}
	if e := s.Exit; e != nil {
		out.Exit = &brig.Exit{Code: e.Code, Reason: brig.ExitReason(e.Reason), OOMKilled: e.OOMKilled, At: e.At}
	}
	return out
}

// FromCopies converts the copies of a fork to their wire type.
func FromCopies(list []*brig.Sandbox) Copies {
	out := Copies{Sandboxes: []Sandbox{}}
	for _, s := range list {
		out.Sandboxes = append(out.Sandboxes, FromSandbox(s))
	}
	return out
}

// FromSandboxUsage converts u to its wire type.
func FromSandboxUsage(u *brig.Usage) SandboxUsage {
	out := SandboxUsage{
		At: u.At, CPUMS: float64(u.CPU) / float64(time.Millisecond),
		Memory: u.Memory, Cache: u.Cache, Sent: u.Sent, Received: u.Received,
	}
	if u.Disk >= 0 {
		out.Disk = &u.Disk
	}
	return out
}

// Domain converts u to its domain type.
func (u SandboxUsage) Domain() *brig.Usage {
	out := &brig.Usage{
		At: u.At, CPU: time.Duration(u.CPUMS * float64(time.Millisecond)),
		Memory: u.Memory, Cache: u.Cache, Disk: -1, Sent: u.Sent, Received: u.Received,
	}
	if u.Disk != nil {
		out.Disk = *u.Disk
	}
	return out
}

// FromPage converts p to its wire type.
func FromPage(p *brig.Page) Sandboxes {
	out := Sandboxes{Sandboxes: []Sandbox{}, NextCursor: p.Next}
	for _, s := range p.Sandboxes {
		out.Sandboxes = append(out.Sandboxes, FromSandbox(s))
	}
	return out
}
