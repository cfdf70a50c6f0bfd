package brig

import (
	"context"
	"time"
)

// BuiltTemplate is a template that a tenant has built. Its builds are stored separately, because
// their logs are long and a template is read for every sandbox that is created from it.
type BuiltTemplate struct {
	// ID consists of 20 characters from a to z and 0 to 9. The caller of PutTemplate chooses it.
	ID, Tenant       string
	Name             string // unique in the tenant
	Created, Updated time.Time
	// Tags maps each tag to a build.
	Tags map[string]TemplateTag
	// Builds is the number of builds that were requested.
	Builds int64
	// Uses is the number of sandboxes that were created from the template, and LastUsed is the
	// time of the last creation.
	Uses     int64
	LastUsed time.Time
	// Removed is set when the template was removed, and some of its sandboxes were not yet.
	Removed time.Time
	Rev     int64 // like Record.Rev
}

// TemplateTag is the build that a tag of a template refers to.
type TemplateTag struct {
	Build    string
	Assigned time.Time
}

// BuildStatus is the status of a TemplateBuild.
type BuildStatus string

// The statuses of a build. A build that is ready or failed does not change its status again.
const (
	BuildWaiting BuildStatus = "waiting"
	BuildRunning BuildStatus = "building"
	BuildReady   BuildStatus = "ready"
	BuildFailed  BuildStatus = "error"
)

// Unfinished reports whether the status can still change.
func (s BuildStatus) Unfinished() bool { return s == BuildWaiting || s == BuildRunning }

// TemplateBuild is one build of a BuiltTemplate.
type TemplateBuild struct {
	ID                         string // a UUID
	Template, Tenant           string // Template is the template's ID
	Status                     BuildStatus
	Limits                     Limits
	Created, Started, Finished time.Time
	// Env, User and Dir are the defaults of the sandboxes' commands.
	Env       map[string]string
	User, Dir string
	// Start and Ready are shell commands. An empty one does not run.
	Start, Ready string
	// Files is the paused sandbox with the files of the template. Sandbox is the one that
	// sandboxes are copies of. They are the same unless there is a start command, because
	// Sandbox then also contains the processes of that command.
	Files, Sandbox ID
	// Discarded are sandboxes that the build no longer needs, and that are not removed yet.
	Discarded []ID
	// Digest identifies the base and the steps of the build. An empty one is unknown.
	Digest string
	// Tags refer to the build when it is ready.
	Tags []string
	// Actor is the name of the caller who requested the build.
	Actor string
	// Failure is set if the build failed.
	Failure *BuildFailure
	Log     []BuildLine
	Rev     int64 // like Record.Rev
}

// BuildFailure is the reason why a build failed.
type BuildFailure struct {
	// Step is "base" for the image, the number of a step from "1" or "finalize" for the part
	// after the last step.
	Step, Message string
}

// BuildLine is a line of a build's log.
type BuildLine struct {
	Time              time.Time
	Level, Step, Text string
}

// BuildFilter selects builds. Empty fields do not filter.
type BuildFilter struct {
	Tenant, Template, ID string
	Unfinished           bool // only builds whose status can still change
	Discarded            bool // only builds with Discarded sandboxes
	Newest               bool // only the newest build of each template, before the other fields select
}

// TemplateStore persists the templates that tenants build.
type TemplateStore interface {
	// PutTemplate writes a template and sets t.Rev. With Rev 0 it inserts the template, and
	// returns AlreadyExists if the ID is taken. Otherwise it returns FailedPrecondition if the
	// stored Rev differs. It returns AlreadyExists with the field "name" if another template of
	// the tenant has the name. It writes builds of the template in the same transaction, as PutBuild
	// does.
	PutTemplate(ctx context.Context, t *BuiltTemplate, builds ...*TemplateBuild) error
	// GetTemplate returns a tenant's template by ID or by name, or NotFound.
	GetTemplate(ctx context.Context, tenant, ref string) (*BuiltTemplate, error)
	// BuiltTemplates returns a tenant's templates by Created, then ID. An empty tenant means
	// all tenants.
	BuiltTemplates(ctx context.Context, tenant string) ([]*BuiltTemplate, error)
	// DeleteTemplate deletes a template with its builds. It returns NotFound if the template
	// does not exist.
	DeleteTemplate(ctx context.Context, tenant, id string) error
	// PutBuild is like PutTemplate. It returns NotFound if the template does not exist.
	PutBuild(ctx context.Context, b *TemplateBuild) error
	// GetBuild returns a build, or NotFound.
	GetBuild(ctx context.Context, tenant, template, id string) (*TemplateBuild, error)
	// Builds returns the selected builds without their logs, newest first (by Created, then ID).
	// A caller that changes such a build must read it with GetBuild before writing it.
	Builds(ctx context.Context, f BuildFilter) ([]*TemplateBuild, error)
	// DeleteBuild deletes a build. It returns NotFound if the build does not exist.
	DeleteBuild(ctx context.Context, tenant, template, id string) error
}
