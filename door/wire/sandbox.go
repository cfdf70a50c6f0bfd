package wire

import "time"

// Limits bound one sandbox. What is left out has its default.
type Limits struct {
	Memory    Size    `json:"memory,omitempty" doc:"bytes of memory, files in /tmp and /dev/shm included"`
	CPUs      float64 `json:"cpus,omitempty" doc:"processors' worth of time, for example 0.5"`
	Processes int     `json:"processes,omitempty" doc:"processes and threads at once, of each user"`
	OpenFiles int     `json:"open_files,omitempty" doc:"open files of each process"`
	Disk      Size    `json:"disk,omitempty" doc:"bytes that may be written to the root file system"`
	Output    Size    `json:"output,omitempty" doc:"bytes kept of each output stream of each execution"`
}

// Spec is a sandbox as it is asked for. Command or shell is its main program,
// whose end is the sandbox's end; user, cwd, command_env and timeout_ms are
// the main program's.
type Spec struct {
	Name       string            `json:"name,omitempty" doc:"1 to 63 of a-z, 0-9 and -, unique among the tenant's sandboxes; one is picked otherwise"`
	Image      string            `json:"image,omitempty" doc:"an image's name or digest; default host"`
	Template   string            `json:"template,omitempty" doc:"a template's name, in the stead of image"`
	Entrypoint bool              `json:"entrypoint,omitempty" doc:"the image's entrypoint is the main program, and command its arguments; without command they are the image's"`
	Command    []string          `json:"command,omitempty" doc:"the main program and its arguments, never parsed by a shell; without one the sandbox waits for exec"`
	Shell      string            `json:"shell,omitempty" doc:"the main program as a script for the image's shell"`
	Env        map[string]string `json:"env,omitempty" doc:"set for every command"`
	CommandEnv map[string]string `json:"command_env,omitempty" doc:"set for the main program alone, and wins over env"`
	Labels     map[string]string `json:"labels,omitempty" doc:"the tenant's own, for the list"`
	Limits     *Limits           `json:"limits,omitempty"`
	Egress     *Egress           `json:"egress,omitempty" doc:"where the sandbox may connect to; default nowhere"`
	Secrets    []SecretUse       `json:"secrets,omitempty" doc:"secrets that its commands are given as variables"`
	Workspace  *WorkspaceUse     `json:"workspace,omitempty" doc:"a workspace to have at /workspace"`
	Require    map[string]string `json:"require,omitempty" doc:"the least that must be enforced, by area, for example {\"memory\": \"boundary\"}; otherwise there is no sandbox"`
	Placement  *Placement        `json:"placement,omitempty" doc:"where it wants to be; default where its tenant's routing has it"`
	TTLMS      int64             `json:"ttl_ms,omitempty" doc:"how long the sandbox lives without being used"`
	FixedLease bool              `json:"fixed_lease,omitempty" doc:"using the sandbox does not renew its lease"`
	FreezeMS   int64             `json:"freeze_after_ms,omitempty" doc:"how long the sandbox may be unused before everything in it stops until it is used again; default never"`
	User       string            `json:"user,omitempty" doc:"user (the default) or root"`
	Cwd        string            `json:"cwd,omitempty" doc:"working directory; default /workspace"`
	TimeoutMS  int64             `json:"timeout_ms,omitempty" doc:"wall time of the main program"`
	// Of every command, unlike user and cwd.
	DefaultUser string `json:"default_user,omitempty" doc:"who commands run as that do not say; default the template's, else user"`
	DefaultCwd  string `json:"default_cwd,omitempty" doc:"where commands run that do not say; default the template's, the image's, else /workspace"`
}

// Sandbox is what the world may know of one sandbox.
type Sandbox struct {
	ID       string `json:"id"`
	ScopedID string `json:"scoped_id" doc:"{tenant}:{name}:{id}, which can be used wherever a name can"`
	Tenant   string `json:"tenant"`
	State    string `json:"state"`
	Spec
	Digest   string    `json:"digest" doc:"what image meant at creation"`
	Provider string    `json:"provider"`
	Route    *Route    `json:"route,omitempty" doc:"why it is there"`
	Created  time.Time `json:"created"`
	Expires  time.Time `json:"expires,omitzero" doc:"when the lease ends unless it is extended"`
	Ended    time.Time `json:"ended,omitzero"`
	Exit     *Exit     `json:"exit,omitempty" doc:"how the machine ended"`
	Notes    []string  `json:"notes,omitempty" doc:"how limits are enforced on this machine, where that is not as one expects"`
	// Of this machine after attest, else of the last one of its image.
	Enforcement map[string]Enforcement `json:"enforcement,omitempty" doc:"how far each area is enforced, as a probe in a sandbox of this image and its host saw it; attest looks at this very one"`

	Pool string `json:"pool,omitempty" doc:"hit when the machine was waiting, miss when it had to be made"`
}

// Exit is how a sandbox's machine ended.
type Exit struct {
	Code      int       `json:"code"`
	Reason    string    `json:"reason"`
	OOMKilled bool      `json:"oom_killed"`
	At        time.Time `json:"at"`
}

// Sandboxes is one page of a list.
type Sandboxes struct {
	Sandboxes  []Sandbox `json:"sandboxes" nullable:"false"`
	NextCursor string    `json:"next_cursor" doc:"for the next page; empty on the last"`
}

// StopRequest asks a sandbox's programs to end.
type StopRequest struct {
	GraceMS int64 `json:"grace_ms,omitempty" doc:"how long they have before they are killed"`
}

// KillRequest has no fields.
type KillRequest struct{}

// ExtendRequest moves the end of the lease.
type ExtendRequest struct {
	TTLMS int64 `json:"ttl_ms,omitempty" doc:"from now"`
}
