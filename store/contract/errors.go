// Package contract holds the parts of brig.Store's contract that all stores
// share: the errors, the page size and the cursor between pages. It has no
// state.
package contract

import (
	"github.com/brig-run/brig"
)

// The text of an error must not depend on the store and must not reveal data of other tenants.

// clip limits the part of a caller's name that an error repeats.
func clip(name string) string { return brig.Clip(name, 80) }

// SandboxNotFoundError returns the error for an unknown name or ID of a tenant's sandbox.
func SandboxNotFoundError(name string) error {
	return brig.Errorf(brig.NotFound, "no sandbox %q", clip(name)).
		WithHint("list sandboxes to see what exists")
}

// ExecNotFoundError returns the error for an unknown execution of a sandbox.
func ExecNotFoundError(id string) error {
	return brig.Errorf(brig.NotFound, "no execution %q", clip(id)).
		WithHint("list the sandbox's executions to see which records exist")
}

// RunNotFoundError returns the error for a name that has no stored outcome.
func RunNotFoundError(name string) error {
	return brig.Errorf(brig.NotFound, "no run %q", clip(name)).
		WithHint("results are stored for a limited time; run the program again")
}

// NameTakenError returns the error for a name that another sandbox of the tenant already has.
func NameTakenError(name string) error {
	return brig.Errorf(brig.AlreadyExists, "a sandbox named %q exists", name).
		WithHint("choose another name, or remove that sandbox first")
}

// IDTakenError returns the error for an ID that another sandbox already has.
func IDTakenError(id brig.ID) error {
	return brig.Errorf(brig.AlreadyExists, "the sandbox id %q is taken", id).
		WithHint("an id is never used again; make a new one")
}

// ConflictError returns the error for a record that has changed since the caller read
// it.
func ConflictError(r *brig.Record) error {
	return brig.Errorf(brig.FailedPrecondition, "sandbox %q was changed by someone else", r.Spec.Name).
		WithHint("look at the sandbox again and repeat the request if it still makes sense")
}

func invalidLimitError(limit int) error {
	return brig.InvalidField("limit", "%d is out of bounds", limit).
		WithHint("give a number from 1 to %d, or leave it out for %d", MaxLimit, DefaultLimit)
}

func invalidCursorError() error {
	return brig.InvalidField("cursor", "this cursor is not from a list").
		WithHint("use the next cursor of the previous page, or omit it to start again")
}

// UnknownKeyError returns the error for an invalid key.
func UnknownKeyError() error {
	return brig.Errorf(brig.Unauthenticated, "invalid API key").
		WithHint("check the key, or ask an administrator for a new one")
}

// SecretNotFoundError returns the error for an unknown secret of a tenant.
func SecretNotFoundError(name string) error {
	return brig.Errorf(brig.NotFound, "no secret %q", clip(name)).
		WithHint("list secrets to see what exists")
}

// SecretConflictError returns the error for a secret that has changed since the caller
// read it.
func SecretConflictError(name string) error {
	return brig.Errorf(brig.FailedPrecondition, "secret %q was changed by someone else", name).
		WithHint("repeat the request if it still makes sense")
}

// TenantNotFoundError returns the error for an unknown tenant.
func TenantNotFoundError(name string) error {
	return brig.Errorf(brig.NotFound, "no tenant %q", brig.Clip(name, 80)).
		WithHint("an operator lists tenants with brig tenant ls")
}

// SessionNotFoundError returns the error for an invalid session.
func SessionNotFoundError() error {
	return brig.Errorf(brig.Unauthenticated, "there is no such session").WithHint("sign in again")
}

// KeyNotFoundError returns the error for an unknown key ID.
func KeyNotFoundError(id string) error {
	return brig.Errorf(brig.NotFound, "no key %q", brig.Clip(id, 80)).
		WithHint("list keys to see their ids")
}

// ToolSetupNotFoundError returns the error for an unknown setup of a tenant.
func ToolSetupNotFoundError(id string) error {
	return brig.Errorf(brig.NotFound, "no setup of tools %q", brig.Clip(id, 80)).
		WithHint("list setups to see what exists")
}

// ToolVariableNotFoundError returns the error for an unknown variable of a tenant.
func ToolVariableNotFoundError(id string) error {
	return brig.Errorf(brig.NotFound, "no variable of tools %q", brig.Clip(id, 80)).
		WithHint("list the variables of a setup to see what exists")
}

// ToolKeyTakenError returns the error for a key that another variable of the setup already has.
func ToolKeyTakenError(key string) error {
	return brig.Errorf(brig.AlreadyExists, "the setup has a variable %q", brig.Clip(key, 80)).
		WithHint("change that one, or choose another key")
}

// NoTemplate returns the error for an unknown name or ID of a tenant's template.
func NoTemplate(ref string) error {
	return brig.Errorf(brig.NotFound, "no template %q", clip(ref)).
		WithHint("list templates to see what exists")
}

// TemplateNameTaken returns the error for a name that another template of the tenant already has.
func TemplateNameTaken(name string) error {
	e := brig.Errorf(brig.AlreadyExists, "a template named %q exists", clip(name))
	e.Field = "name"
	return e.WithHint("choose another name, or delete that template first")
}

// TemplateIDTaken returns the error for an ID that another template of the tenant already has.
func TemplateIDTaken(id string) error {
	return brig.Errorf(brig.AlreadyExists, "the template id %q is taken", clip(id)).
		WithHint("make a new id")
}

// TemplateConflict returns the error for a template that has changed since the caller read it.
func TemplateConflict(t *brig.BuiltTemplate) error {
	return brig.Errorf(brig.FailedPrecondition, "template %q was changed by someone else", clip(t.Name)).
		WithHint("look at the template again and repeat the request if it still makes sense")
}

// NoWebhook returns the error for an unknown ID of a tenant's webhook.
func NoWebhook(id string) error {
	return brig.Errorf(brig.NotFound, "no webhook %q", clip(id)).
		WithHint("list webhooks to see what exists")
}

// WebhookConflict returns the error for a webhook that has changed since the caller read it.
func WebhookConflict(w *brig.Webhook) error {
	return brig.Errorf(brig.FailedPrecondition, "webhook %q was changed by someone else", clip(w.ID)).
		WithHint("look at the webhook again and repeat the request if it still makes sense")
}

// NoVolume returns the error for an unknown name or ID of a tenant's volume.
func NoVolume(ref string) error {
	return brig.Errorf(brig.NotFound, "no volume %q", clip(ref)).
		WithHint("list volumes to see what exists")
}

// VolumeNameTaken returns the error for a name that another volume of the tenant already has.
func VolumeNameTaken(name string) error {
	e := brig.Errorf(brig.AlreadyExists, "a volume named %q exists", clip(name))
	e.Field = "name"
	return e.WithHint("choose another name, or remove that volume first")
}

// VolumeIDTaken returns the error for an ID that another volume of the tenant already has.
func VolumeIDTaken(id string) error {
	return brig.Errorf(brig.AlreadyExists, "the volume id %q is taken", clip(id)).
		WithHint("make a new id")
}

// NoBuild returns the error for an unknown build of a template.
func NoBuild(id string) error {
	return brig.Errorf(brig.NotFound, "no build %q", clip(id)).
		WithHint("list the builds of the template to see what exists")
}

// BuildIDTaken returns the error for an ID that another build of the template already has.
func BuildIDTaken(id string) error {
	return brig.Errorf(brig.AlreadyExists, "the build id %q is taken", clip(id)).
		WithHint("make a new id")
}

// BuildConflict returns the error for a build that has changed since the caller read it.
func BuildConflict(b *brig.TemplateBuild) error {
	return brig.Errorf(brig.FailedPrecondition, "build %q was changed by someone else", clip(b.ID)).
		WithHint("look at the build again and repeat the request if it still makes sense")
}
