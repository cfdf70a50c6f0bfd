package v1

import (
	"maps"
	"slices"
	"time"

	"github.com/brig-run/brig"
)

// EventLine is an event of the log of a template's build: TemplateBuildLine.
const EventLine = "line"

// TemplateBuildRequest is the request to build a template.
type TemplateBuildRequest struct {
	Tags     []string            `json:"tags,omitempty" doc:"tags that refer to the build when it is ready; default: the tag in the path, or default" maxItems:"100" items:"^[A-Za-z0-9._-]{1,128}$"`
	Image    string              `json:"image,omitempty" doc:"image that the build begins with" minLength:"1" maxLength:"512"`
	Template string              `json:"template,omitempty" doc:"template that the build begins with, instead of image" minLength:"1" maxLength:"192"`
	Registry *RegistryLogin      `json:"registry,omitempty" doc:"login for the registry of image; not stored"`
	Steps    []TemplateBuildStep `json:"steps,omitempty" doc:"steps, in order" maxItems:"1000"`
	Start    string              `json:"start,omitempty" doc:"shell command that runs in every sandbox of the template" pattern:"^[^\\x00]*$"`
	Ready    string              `json:"ready,omitempty" doc:"shell command that runs repeatedly until it exits with 0; then the template is ready; default with start: sleep 20" pattern:"^[^\\x00]*$"`
	NoCache  bool                `json:"no_cache,omitempty" doc:"run all steps, also those that an earlier build has run"`
	Limits   *TemplateLimits     `json:"limits,omitempty" doc:"limits of the template's sandboxes; default: those of the server"`
}

// RegistryLogin is a login for a registry.
type RegistryLogin struct {
	Username string `json:"username,omitempty"`
	Password string `json:"password,omitempty" doc:"password, or a token without a username"`
}

// TemplateLimits are the limits that a template can have.
type TemplateLimits struct {
	Memory Size    `json:"memory,omitempty" doc:"bytes of memory" minimum:"1"`
	CPUs   float64 `json:"cpus,omitempty" doc:"number of processors, for example 0.5" minimum:"0.01"`
}

// TemplateBuildStep is one step of a build. Its type determines which fields it has.
type TemplateBuildStep struct {
	Type        string            `json:"type" doc:"run (command, user), copy (digest, source, destination, owner, mode), env (env), workdir (cwd) or user (user)" enum:"run,copy,env,workdir,user"`
	Command     string            `json:"command,omitempty" doc:"shell command of a run" pattern:"^[^\\x00]*$"`
	User        string            `json:"user,omitempty" doc:"user of the following steps and of the sandboxes' commands; of a run: only for its command"`
	Digest      string            `json:"digest,omitempty" doc:"digest of the uploaded archive of a copy" pattern:"^[0-9a-f]{64}$"`
	Source      string            `json:"source,omitempty" doc:"path in the archive: a file, or a directory, whose content is copied"`
	Destination string            `json:"destination,omitempty" doc:"path in the sandbox; a relative one is below the working directory"`
	Owner       string            `json:"owner,omitempty" doc:"owner of the copied files, such as root or user:user; default: the user of the steps before"`
	Mode        string            `json:"mode,omitempty" doc:"mode of the copied files in octal digits; default: as in the archive" pattern:"^[0-7]{3,4}$"`
	Env         map[string]string `json:"env,omitempty" doc:"variables of the following steps and of the sandboxes; values can refer to others as $NAME" maxItems:"1000" keys:"^[^=\\x00]+$" items:"^[^\\x00]*$"`
	Cwd         string            `json:"cwd,omitempty" doc:"working directory of the following steps and of the sandboxes' commands, which is created" pattern:"^[^\\x00]*$"`
	NoCache     bool              `json:"no_cache,omitempty" doc:"run this step and those after it, also if an earlier build has run them"`
}

// TemplateBuild is one build of a template.
type TemplateBuild struct {
	ID       string            `json:"id"`
	Template string            `json:"template_id" doc:"ID of the template"`
	Status   string            `json:"status" enum:"waiting,building,ready,error"`
	Tags     []string          `json:"tags" nullable:"false" doc:"tags that the build gets when it is ready"`
	Limits   *Limits           `json:"limits,omitempty" doc:"limits of the template's sandboxes"`
	Created  time.Time         `json:"created"`
	Started  time.Time         `json:"started,omitzero"`
	Finished time.Time         `json:"finished,omitzero"`
	Actor    string            `json:"actor" doc:"name of the caller who requested the build"`
	Env      map[string]string `json:"env,omitempty" doc:"variables of the sandboxes' commands"`
	User     string            `json:"user,omitempty" doc:"default user of the sandboxes' commands"`
	Cwd      string            `json:"cwd,omitempty" doc:"default working directory of the sandboxes' commands"`
	Start    string            `json:"start,omitempty" doc:"start command"`
	Ready    string            `json:"ready,omitempty" doc:"ready command"`
	Sandbox  string            `json:"sandbox,omitempty" doc:"ID of the paused sandbox that the template's sandboxes are copies of"`
	Files    string            `json:"files_sandbox,omitempty" doc:"ID of the paused sandbox with the files; another one than sandbox if there is a start command"`
	Failure  *BuildFailure     `json:"failure,omitempty" doc:"why the build failed"`
}

// BuildFailure is the reason why a build failed.
type BuildFailure struct {
	Step    string `json:"step" doc:"base, the number of a step from 1, or finalize for the part after the last step"`
	Message string `json:"message"`
}

// TemplateBuildLine is a line of a build's log.
type TemplateBuildLine struct {
	Time  time.Time `json:"time"`
	Level string    `json:"level" enum:"debug,info,warn,error" doc:"warn for standard error"`
	Step  string    `json:"step" doc:"base, the number of a step from 1, or finalize"`
	Text  string    `json:"text"`
}

// TemplateBuildLog is a part of a build's log.
type TemplateBuildLog struct {
	Build TemplateBuild       `json:"build"`
	Lines []TemplateBuildLine `json:"lines" nullable:"false" doc:"empty in the result of a stream, whose events have the lines"`
	Next  int                 `json:"next_offset" doc:"offset of the next line"`
}

// BuiltTemplate is a template that a tenant has built.
type BuiltTemplate struct {
	ID      string        `json:"id"`
	Name    string        `json:"name"`
	Created time.Time     `json:"created"`
	Updated time.Time     `json:"updated"`
	Tags    []TemplateTag `json:"tags" nullable:"false" doc:"sorted by name"`
	Uses    int64         `json:"uses" doc:"number of sandboxes that were created from it"`
	Used    time.Time     `json:"last_used,omitzero"`
}

// TemplateTag is a tag of a template.
type TemplateTag struct {
	Tag      string    `json:"tag"`
	Build    string    `json:"build" doc:"ID of the build that it refers to"`
	Assigned time.Time `json:"assigned"`
}

// TemplateDetails is a built template with its builds.
type TemplateDetails struct {
	BuiltTemplate
	Builds []TemplateBuild `json:"builds" nullable:"false" doc:"newest first"`
}

// TagTemplateRequest is the request to make a tag refer to the build of another tag.
type TagTemplateRequest struct {
	Tag  string `json:"tag" doc:"1 to 128 of a-z, A-Z, 0-9, -, _ and ." pattern:"^[A-Za-z0-9._-]{1,128}$" example:"stable"`
	From string `json:"from,omitempty" doc:"tag that refers to the build; default: default" pattern:"^[A-Za-z0-9._-]{1,128}$"`
}

// TemplateFiles reports whether files for builds were uploaded.
type TemplateFiles struct {
	Present bool `json:"present"`
}

// FromBuildSpec converts s to its wire type, without the name, which is in the path.
func FromBuildSpec(s brig.BuildSpec) TemplateBuildRequest {
	out := TemplateBuildRequest{Tags: s.Tags, Image: s.Image, Template: s.Template, Start: s.Start, Ready: s.Ready, NoCache: s.NoCache}
	if s.Username != "" || s.Password != "" {
		out.Registry = &RegistryLogin{Username: s.Username, Password: s.Password}
	}
	if s.CPUs != 0 || s.Memory != 0 {
		out.Limits = &TemplateLimits{Memory: Size(s.Memory), CPUs: s.CPUs}
	}
	for _, step := range s.Steps {
		out.Steps = append(out.Steps, TemplateBuildStep{
			Type: string(step.Kind), Command: step.Command, User: step.User, Digest: step.Digest, Source: step.Source,
			Destination: step.Destination, Owner: step.Owner, Mode: step.Mode, Env: step.Env, Cwd: step.Dir, NoCache: step.NoCache,
		})
	}
	return out
}

// Domain converts r to its domain type. name is the name of the template.
func (r TemplateBuildRequest) Domain(name string) brig.BuildSpec {
	out := brig.BuildSpec{Name: name, Tags: r.Tags, Image: r.Image, Template: r.Template, Start: r.Start, Ready: r.Ready, NoCache: r.NoCache}
	if r.Registry != nil {
		out.Username, out.Password = r.Registry.Username, r.Registry.Password
	}
	if r.Limits != nil {
		out.CPUs, out.Memory = r.Limits.CPUs, int64(r.Limits.Memory)
	}
	for _, s := range r.Steps {
		out.Steps = append(out.Steps, brig.BuildStep{
			Kind: brig.BuildStepKind(s.Type), Command: s.Command, User: s.User, Digest: s.Digest, Source: s.Source,
			Destination: s.Destination, Owner: s.Owner, Mode: s.Mode, Env: s.Env, Dir: s.Cwd, NoCache: s.NoCache,
		})
	}
	return out
}

// FromTemplateBuild converts b to its wire type, without its log.
func FromTemplateBuild(b *brig.TemplateBuild) TemplateBuild {
	out := TemplateBuild{
		ID: b.ID, Template: b.Template, Status: string(b.Status), Tags: b.Tags, Limits: FromLimits(b.Limits), Created: b.Created, Started: b.Started,
		Finished: b.Finished, Actor: b.Actor, Env: b.Env, User: b.User, Cwd: b.Dir, Start: b.Start, Ready: b.Ready, Sandbox: string(b.Sandbox), Files: string(b.Files),
	}
	if out.Tags == nil {
		out.Tags = []string{}
	}
	if f := b.Failure; f != nil {
		out.Failure = &BuildFailure{Step: f.Step, Message: f.Message}
	}
	return out
}

// Domain converts b to its domain type.
func (b TemplateBuild) Domain() *brig.TemplateBuild {
	out := &brig.TemplateBuild{
		ID: b.ID, Template: b.Template, Status: brig.BuildStatus(b.Status), Tags: b.Tags, Limits: b.Limits.Domain(), Created: b.Created, Started: b.Started,
		Finished: b.Finished, Actor: b.Actor, Env: b.Env, User: b.User, Dir: b.Cwd, Start: b.Start, Ready: b.Ready, Sandbox: brig.ID(b.Sandbox), Files: brig.ID(b.Files),
	}
	if f := b.Failure; f != nil {
		out.Failure = &brig.BuildFailure{Step: f.Step, Message: f.Message}
	}
	return out
}

// TemplateBuilds is a list of builds.
type TemplateBuilds struct {
	Builds []TemplateBuild `json:"builds" nullable:"false"`
}

// FromTemplateBuilds converts a list to its wire type.
func FromTemplateBuilds(list []*brig.TemplateBuild) TemplateBuilds {
	out := TemplateBuilds{Builds: []TemplateBuild{}}
	for _, b := range list {
		out.Builds = append(out.Builds, FromTemplateBuild(b))
	}
	return out
}

// FromBuildLine converts l to its wire type.
func FromBuildLine(l brig.BuildLine) TemplateBuildLine { return TemplateBuildLine(l) }

// Domain converts l to its domain type.
func (l TemplateBuildLine) Domain() brig.BuildLine { return brig.BuildLine(l) }

// FromBuildLog converts the build and the lines of its log from offset on.
func FromBuildLog(b *brig.TemplateBuild, offset int) TemplateBuildLog {
	out := TemplateBuildLog{Build: FromTemplateBuild(b), Lines: []TemplateBuildLine{}, Next: max(offset, len(b.Log))}
	for _, l := range b.Log[min(offset, len(b.Log)):] {
		out.Lines = append(out.Lines, FromBuildLine(l))
	}
	return out
}

// FromBuiltTemplate converts t to its wire type.
func FromBuiltTemplate(t *brig.BuiltTemplate) BuiltTemplate {
	out := BuiltTemplate{ID: t.ID, Name: t.Name, Created: t.Created, Updated: t.Updated, Tags: []TemplateTag{}, Uses: t.Uses, Used: t.LastUsed}
	for _, tag := range slices.Sorted(maps.Keys(t.Tags)) {
		out.Tags = append(out.Tags, TemplateTag{Tag: tag, Build: t.Tags[tag].Build, Assigned: t.Tags[tag].Assigned})
	}
	return out
}

// Domain converts t to its domain type.
func (t BuiltTemplate) Domain() *brig.BuiltTemplate {
	out := &brig.BuiltTemplate{ID: t.ID, Name: t.Name, Created: t.Created, Updated: t.Updated, Uses: t.Uses, LastUsed: t.Used, Tags: map[string]brig.TemplateTag{}}
	for _, tag := range t.Tags {
		out.Tags[tag.Tag] = brig.TemplateTag{Build: tag.Build, Assigned: tag.Assigned}
	}
	return out
}

// FromTemplateDetails converts d to its wire type.
func FromTemplateDetails(d *brig.TemplateDetails) TemplateDetails {
	out := TemplateDetails{BuiltTemplate: FromBuiltTemplate(&d.BuiltTemplate), Builds: []TemplateBuild{}}
	for _, b := range d.Builds {
		out.Builds = append(out.Builds, FromTemplateBuild(b))
	}
	return out
}

// Domain converts d to its domain type.
func (d TemplateDetails) Domain() *brig.TemplateDetails {
	out := &brig.TemplateDetails{BuiltTemplate: *d.BuiltTemplate.Domain()}
	for _, b := range d.Builds {
		out.Builds = append(out.Builds, b.Domain())
	}
	return out
}
