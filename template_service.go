package brig

import (
	"context"
	"io"
)

// TemplateService builds and manages the templates of the caller's tenant. It is not part of Service,
// because package builder implements it on top of a Service. Package client implements it through REST.
// The context carries the actor. Methods return NotFound for the objects of another tenant.
type TemplateService interface {
	TemplateBuildService
	BuiltTemplateService
}

// TemplateBuildService runs builds. A build is addressed by its ID and the name or the ID of its
// template.
type TemplateBuildService interface {
	// BuildTemplate starts a build, and creates the template if it does not exist.
	BuildTemplate(ctx context.Context, spec BuildSpec) (*TemplateBuild, error)
	// GetTemplateBuild returns a build with its log, which includes the lines of a running build.
	GetTemplateBuild(ctx context.Context, template, id string) (*TemplateBuild, error)
	// FollowTemplateBuild calls on with the lines of a build's log, except the first skip ones, until the
	// build has ended. It returns the build with its log. The end of ctx does not end the build.
	FollowTemplateBuild(ctx context.Context, template, id string, skip int, on func(BuildLine) error) (*TemplateBuild, error)
	// CancelTemplateBuild ends a build, which then has failed. It returns FailedPrecondition if the build
	// has ended.
	CancelTemplateBuild(ctx context.Context, template, id string) error
	// HasTemplateFiles reports whether the tenant has uploaded the archive with a digest.
	HasTemplateFiles(ctx context.Context, digest string) (bool, error)
	// PutTemplateFiles stores a tar archive of size bytes for the copy steps of builds, plain or compressed
	// with gzip. The caller chooses the digest: 64 hexadecimal digits that depend on the files.
	PutTemplateFiles(ctx context.Context, digest string, size int64, r io.Reader) error
}

// BuiltTemplateService manages the templates that the tenant has built. Service.Templates lists them.
type BuiltTemplateService interface {
	// GetTemplate returns a template by name or ID, with its builds without their logs, newest first.
	GetTemplate(ctx context.Context, template string) (*TemplateDetails, error)
	// TagTemplate makes a tag refer to the build to which another tag of the template refers.
	TagTemplate(ctx context.Context, template, from, tag string) error
	// UntagTemplate removes a tag. A build without tags loses its files.
	UntagTemplate(ctx context.Context, template, tag string) error
	// RemoveTemplate removes a template with its builds. Sandboxes that were created from it remain.
	RemoveTemplate(ctx context.Context, template string) error
}

// TemplateDetails is a template with its builds.
type TemplateDetails struct {
	BuiltTemplate
	Builds []*TemplateBuild
}

// BuildSpec describes a build of a template.
type BuildSpec struct {
	// Name is the name of the template, with an optional tag ("web" or "web:v1").
	Name string
	// Tags refer to the build when it is ready. Default: the tag in Name, or "default".
	Tags []string
	// Image is the image that the build begins with, Template the template. Exactly one is set.
	Image, Template string
	// Username and Password are the credentials for the registry of Image.
	Username, Password string
	Steps              []BuildStep
	// Start is a shell command that runs in every sandbox of the template. Ready is run repeatedly
	// until it exits with 0. Then the template is ready.
	Start, Ready string
	// NoCache runs all steps, also those that an earlier build has run.
	NoCache bool
	// CPUs and Memory are the limits of the sandboxes. Default: those of the server.
	CPUs   float64
	Memory int64
}

// BuildStepKind is the kind of a BuildStep.
type BuildStepKind string

// The kinds of steps.
const (
	BuildRun     BuildStepKind = "run"     // runs a command
	BuildCopy    BuildStepKind = "copy"    // copies uploaded files
	BuildEnv     BuildStepKind = "env"     // sets variables
	BuildWorkdir BuildStepKind = "workdir" // sets the working directory
	BuildUser    BuildStepKind = "user"    // sets the user
)

// BuildStep is one step of a build. Kind determines which fields it has.
type BuildStep struct {
	Kind BuildStepKind
	// Command is the shell command of a BuildRun.
	Command string
	// User is the user of a BuildUser, or of the command of a BuildRun. Default: that of the steps before.
	User string
	// Digest is the digest of the uploaded archive of a BuildCopy. Source is a path in the archive, and
	// Destination one in the sandbox.
	Digest, Source, Destination string
	// Owner and Mode are those of the copied files. Default: the user of the steps before, and the modes in
	// the archive.
	Owner, Mode string
	// Env are the variables of a BuildEnv. A value can refer to other variables, as in a Dockerfile.
	Env map[string]string
	// Dir is the directory of a BuildWorkdir, which is created if it does not exist.
	Dir string
	// NoCache runs this step and those after it, also if an earlier build has run them.
	NoCache bool
}
