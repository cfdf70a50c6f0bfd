package rest

import (
	"github.com/brig-run/brig"
	"github.com/brig-run/brig/audit"
	"github.com/brig-run/brig/door/wire"
)

// JSON returns v, one of the root package's nouns or a list of them, in the
// form in which this API writes it, for others who print the same JSON.
func JSON(v any) any {
	switch v := v.(type) {
	case *brig.Sandbox:
		return fromSandbox(v)
	case *brig.Page:
		return fromPage(v)
	case *brig.Result:
		return fromResult(v)
	case *brig.Outcome:
		return fromOutcome(v)
	case *brig.CodeContext:
		return fromContext(v)
	case []*brig.CodeContext:
		return fromContexts(v)
	case *brig.CodeResult:
		return fromCode(v)
	case *brig.Entry:
		return fromEntry(v)
	case []*brig.Entry:
		return fromEntries(v)
	case *brig.ProcessInfo:
		return fromProcess(v)
	case []*brig.ProcessInfo:
		return fromProcesses(v)
	case []brig.Template:
		return fromTemplates(v)
	case []brig.PoolShelf:
		return fromPool(v)
	case *brig.NewKey:
		return fromNewKey(v)
	case []*brig.Key:
		return fromKeys(v)
	case *brig.NewGrant:
		return wire.FromGrant(v)
	case *brig.Tenant:
		return wire.FromTenant(v)
	case []*brig.Tenant:
		return fromTenants(v)
	case []brig.Alert:
		return wire.FromAlerts(v)
	case []brig.UsageLine:
		return wire.FromUsage(v)
	case *brig.Image:
		return fromImage(v)
	case []*brig.Image:
		return fromImages(v)
	case []brig.ProviderInfo:
		return fromProviders(v)
	case *brig.ProviderInfo:
		return wire.FromProvider(v)
	case *brig.ProviderTest:
		return wire.FromTest(v)
	case *brig.Routing:
		return wire.FromRouting(*v)
	case *brig.Capabilities:
		return wire.FromCapabilities(v)
	case *brig.Secret:
		return wire.FromSecret(v)
	case []*brig.Secret:
		return fromSecrets(v)
	case *brig.AuditPage:
		return audit.FromPage(v)
	case []*brig.Execution:
		return fromExecutions(v)
	}
	return v
}
