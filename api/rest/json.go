package rest

import (
	"errors"
	"strings"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/v1"
	"github.com/brig-run/brig/audit"
)

// JSON converts v to the type that this API encodes, for other packages that
// print the same JSON. v is a domain type of the root package or a list of such
// values.
func JSON(v any) any {
	switch v := v.(type) {
	case *brig.Sandbox:
		return v1.FromSandbox(v)
	case []*brig.Sandbox:
		return v1.FromCopies(v)
	case *brig.Page:
		return v1.FromPage(v)
	case *brig.Result:
		return v1.FromResult(v)
	case *brig.RunPage:
		return v1.FromRuns(v)
	case *brig.Outcome:
		return v1.FromOutcome(v)
	case *brig.CodeContext:
		return v1.FromContext(v)
	case []*brig.CodeContext:
		return v1.FromContexts(v)
	case *brig.CodeResult:
		return v1.FromCodeResult(v)
	case *brig.Entry:
		return v1.FromEntry(v)
	case []*brig.Entry:
		return v1.FromEntries(v)
	case *brig.ProcessInfo:
		return v1.FromProcess(v)
	case []*brig.ProcessInfo:
		return v1.FromProcesses(v)
	case []brig.Template:
		return fromTemplates(v)
	case *brig.TemplateDetails:
		return v1.FromTemplateDetails(v)
	case *brig.TemplateBuild:
		return v1.FromTemplateBuild(v)
	case []*brig.TemplateBuild:
		return v1.FromTemplateBuilds(v)
	case brig.BuildLine:
		return v1.FromBuildLine(v)
	case []brig.PoolClass:
		return v1.FromPool(v)
	case *brig.NewKey:
		return fromNewKey(v)
	case []*brig.Key:
		return fromKeys(v)
	case *brig.NewGrant:
		return v1.FromGrant(v)
	case *brig.Tenant:
		return v1.FromTenant(v)
	case []*brig.Tenant:
		return fromTenants(v)
	case []brig.Alert:
		return v1.FromAlerts(v)
	case []brig.UsageLine:
		return v1.FromUsage(v)
	case *brig.Image:
		return v1.FromImage(v)
	case []*brig.Image:
		return v1.FromImages(v)
	case []brig.ProviderInfo:
		return fromProviders(v)
	case *brig.ProviderInfo:
		return v1.FromProvider(v)
	case *brig.ProviderTest:
		return v1.FromTest(v)
	case *brig.Routing:
		return v1.FromRouting(*v)
	case *brig.Capabilities:
		return v1.FromCapabilities(v)
	case *brig.Secret:
		return v1.FromSecret(v)
	case []*brig.Secret:
		return fromSecrets(v)
	case *brig.AuditPage:
		return audit.FromPage(v)
	case []*brig.Execution:
		return v1.FromExecutions(v)
	case brig.Actor:
		return v1.FromActor(v)
	case []*brig.Session:
		return v1.FromSessions(v)
	case *brig.Workspace:
		return v1.FromWorkspace(v)
	case []*brig.Workspace:
		return fromWorkspaces(v)
	case *brig.WorkspaceVersion:
		return v1.FromWorkspaceVersion(v)
	case []*brig.WorkspaceVersion:
		return fromWorkspaceVersions(v)
	case []brig.WorkspaceFile:
		return v1.FromWorkspaceFiles(v)
	case []brig.WorkspaceChange:
		return v1.WorkspaceDiff{Changes: v1.FromWorkspaceChanges(v)}
	case *brig.WorkspaceCommit:
		return v1.FromWorkspaceCommit(v)
	}
	return v
}

// fields maps field names of the domain types to their names in requests. In a
// request, the fields of the main program are next to those of the sandbox.
var fields = map[string]string{
	"timeout": "timeout_ms", "ttl": "ttl_ms", "grace": "grace_ms",
	"argv": "command", "dir": "cwd",
	"command.argv": "command", "command.shell": "shell", "command.env": "command_env",
	"command.dir": "cwd", "command.user": "user", "command.timeout": "timeout_ms",
}

// withRequestField returns err with the field's name in requests.
func withRequestField(err error) error {
	e, ok := errors.AsType[*brig.Error](err)
	if !ok || e.Field == "" || e.Kind == brig.InvalidConfig { // configuration fields have their own names
		return err
	}
	for end := len(e.Field); end > 0; end = strings.LastIndexAny(e.Field[:end], ".[") {
		if name, ok := fields[e.Field[:end]]; ok {
			renamed := *e
			renamed.Field = name + e.Field[end:]
			return &renamed
		}
	}
	return err
}
