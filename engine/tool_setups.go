package engine

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"strings"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/seal"
	"github.com/brig-run/brig/tool"
)

// maxToolVariables is how many a setup may have.
const maxToolVariables = 500

// newToolID returns a random UUID, as Letta's clients expect ids to be.
func newToolID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	h := hex.EncodeToString(b[:])
	return strings.Join([]string{h[:8], h[8:12], h[12:16], h[16:20], h[20:]}, "-")
}

// PutToolSetup implements brig.Service.
func (e *Engine) PutToolSetup(ctx context.Context, s brig.ToolSetup) (_ *brig.ToolSetup, err error) {
	v, err := e.enter(ctx, brig.OpPutToolSetup, "", func(v *visit) { v.say(brig.DetailName, clip(s.ID)) })
	if err != nil {
		return nil, err
	}
	defer func() { v.leave(ctx, &err) }()
	kind := s.Kind
	var config json.RawMessage
	switch {
	case s.ID != "":
		old, err := e.Store.GetToolSetup(ctx, v.actor.Tenant, s.ID)
		if err != nil {
			return nil, err
		}
		if kind = old.Kind; s.Kind != "" && s.Kind != kind {
			return nil, brig.InvalidField("type", "a setup of the kind %s cannot become one of %s", kind, clip(string(s.Kind))).WithHint("make one of that kind, and remove this one")
		}
		config, err = tool.As(kind, s.Config)
		if err != nil {
			return nil, err
		}
	case kind == "":
		if kind, config, err = tool.Config(s.Config); err != nil {
			return nil, err
		}
	default:
		if err := checkKind(kind); err != nil {
			return nil, err
		}
		if len(s.Config) == 0 {
			s.Config = tool.Default(kind)
		}
		if config, err = tool.As(kind, s.Config); err != nil {
			return nil, err
		}
	}
	now := e.Now().UTC()
	put := &brig.ToolSetup{
		ID: newToolID(), Tenant: v.actor.Tenant, Kind: kind, Config: config,
		Created: now, Updated: now, CreatedBy: v.actor.Name, UpdatedBy: v.actor.Name,
	}
	v.say(brig.DetailName, string(kind))
	return put, e.Store.PutToolSetup(ctx, put, v.outcome())
}

func checkKind(kind brig.ToolKind) error {
	for _, k := range brig.ToolKinds {
		if k == kind {
			return nil
		}
	}
	return brig.InvalidField("type", "no kind of setup %q", clip(string(kind))).WithHint("use one of: %v", brig.ToolKinds)
}

// ToolSetups implements brig.Service.
func (e *Engine) ToolSetups(ctx context.Context) (_ []*brig.ToolSetup, err error) {
	v, err := e.enter(ctx, brig.OpToolSetups, "")
	if err != nil {
		return nil, err
	}
	defer func() { v.leave(ctx, &err) }()
	return e.Store.ToolSetups(ctx, v.actor.Tenant)
}

// RenewToolSetup implements brig.Service.
func (e *Engine) RenewToolSetup(ctx context.Context, kind brig.ToolKind) (_ *brig.ToolSetup, err error) {
	v, err := e.enter(ctx, brig.OpRenewToolSetup, "", func(v *visit) { v.say(brig.DetailName, clip(string(kind))) })
	if err != nil {
		return nil, err
	}
	defer func() { v.leave(ctx, &err) }()
	if err := checkKind(kind); err != nil {
		return nil, err
	}
	list, err := e.Store.ToolSetups(ctx, v.actor.Tenant)
	if err != nil {
		return nil, err
	}
	for _, s := range list {
		if s.Kind == kind {
			for _, x := range e.boxes.take(v.actor.Tenant, kind) {
				e.endBox(ctx, x)
			}
			return s, nil
		}
	}
	return nil, brig.Errorf(brig.NotFound, "there is no setup of the kind %s", kind).WithHint("make one first")
}

// RemoveToolSetup implements brig.Service.
func (e *Engine) RemoveToolSetup(ctx context.Context, id string) (err error) {
	v, err := e.enter(ctx, brig.OpRemoveToolSetup, "", func(v *visit) { v.say(brig.DetailName, clip(id)) })
	if err != nil {
		return err
	}
	defer func() { v.leave(ctx, &err) }()
	s, err := e.Store.GetToolSetup(ctx, v.actor.Tenant, id)
	if err != nil {
		return err
	}
	if err := e.Store.DeleteToolSetup(ctx, v.actor.Tenant, id, v.outcome()); err != nil {
		return err
	}
	for _, x := range e.boxes.take(v.actor.Tenant, s.Kind) {
		e.endBox(ctx, x)
	}
	return nil
}

// PutToolVariable implements brig.Service.
func (e *Engine) PutToolVariable(ctx context.Context, x brig.ToolVariable) (_ *brig.ToolVariable, err error) {
	v, err := e.enter(ctx, brig.OpPutToolVariable, "", func(v *visit) { v.say(brig.DetailName, clip(x.Key)) })
	if err != nil {
		return nil, err
	}
	defer func() { v.leave(ctx, &err) }()
	have, err := e.Store.ToolVariables(ctx, v.actor.Tenant, x.Setup)
	if err != nil {
		return nil, err
	}
	if len(have) >= maxToolVariables {
		return nil, brig.InvalidField("key", "a setup has at most %d variables", maxToolVariables).WithHint("remove some")
	}
	x.ID = newToolID()
	return e.keepVariable(ctx, v, x, e.Store.PutToolVariable)
}

// ChangeToolVariable implements brig.Service.
func (e *Engine) ChangeToolVariable(ctx context.Context, id string, c brig.ToolVariableChange) (_ *brig.ToolVariable, err error) {
	v, err := e.enter(ctx, brig.OpChangeToolVariable, "", func(v *visit) { v.say(brig.DetailName, clip(id)) })
	if err != nil {
		return nil, err
	}
	defer func() { v.leave(ctx, &err) }()
	old, err := e.Store.GetToolVariable(ctx, v.actor.Tenant, id)
	if err != nil {
		return nil, err
	}
	x := old.ToolVariable
	if x.Value, err = e.unsealVariable(old); err != nil && c.Value == nil {
		return nil, err
	}
	for _, part := range []struct{ from, to *string }{{c.Key, &x.Key}, {c.Value, &x.Value}, {c.Description, &x.Description}} {
		if part.from != nil {
			*part.to = *part.from
		}
	}
	// Who removes it meanwhile has removed it.
	return e.keepVariable(ctx, v, x, e.Store.ChangeToolVariable)
}

// keepVariable writes a variable, its value sealed.
func (e *Engine) keepVariable(ctx context.Context, v *visit, x brig.ToolVariable, write func(context.Context, *brig.SealedToolVariable, ...brig.Event) error) (*brig.ToolVariable, error) {
	if err := e.noSecrets(); err != nil {
		return nil, err
	}
	if x.Key == "" {
		return nil, brig.InvalidField("key", "it is empty").WithHint("for example API_KEY")
	}
	if err := brig.CheckEnv("key", map[string]string{x.Key: x.Value}); err != nil {
		return nil, err
	}
	if len(x.Value) > brig.MaxSecret || len(x.Description) > 4096 || len(x.Key) > 256 {
		return nil, brig.InvalidField("value", "the variable is too long").WithHint("a key has up to 256 bytes, a description 4096 and a value %s", brig.FormatBytes(int64(brig.MaxSecret)))
	}
	now := e.Now().UTC()
	x.Tenant, x.Updated, x.UpdatedBy = v.actor.Tenant, now, v.actor.Name
	if x.Created.IsZero() {
		x.Created, x.CreatedBy = now, v.actor.Name
	}
	// Not while everything is encrypted anew: what came late would stay as it is.
	e.sealing.RLock()
	defer e.sealing.RUnlock()
	value := x.Value
	x.Value = ""
	kept := &brig.SealedToolVariable{ToolVariable: x}
	e.sealVariable(kept, value)
	if err := write(ctx, kept, v.outcome()); err != nil {
		return nil, err
	}
	out := kept.ToolVariable
	out.Value = value
	return &out, nil
}

// variableAddress names where a variable's value is kept. An id may become
// another while it is written, so it is not a part of it.
func variableAddress(x *brig.SealedToolVariable) []string {
	return []string{"tools", x.Tenant, x.Setup, x.Key}
}

func (e *Engine) sealVariable(x *brig.SealedToolVariable, value string) {
	x.SealedBy, x.Sealed = e.Options.Keys.Seal([]byte(value), variableAddress(x)...)
}

// unsealVariable decrypts a variable's value.
func (e *Engine) unsealVariable(x *brig.SealedToolVariable) (string, error) {
	if err := e.noSecrets(); err != nil {
		return "", err
	}
	value, err := e.Options.Keys.Open(x.SealedBy, x.Sealed, variableAddress(x)...)
	if err != nil {
		why := "what is kept of it was changed"
		if errors.Is(err, seal.ErrUnknownKey) {
			why = "it was encrypted with a key that this server does not have"
		}
		return "", brig.Errorf(brig.FailedPrecondition, "the variable %q of tools does not open: %s", clip(x.Key), why).
			WithHint("set it again").Because(err)
	}
	return string(value), nil
}

// ToolVariables implements brig.Service.
func (e *Engine) ToolVariables(ctx context.Context, setup string) (_ []*brig.ToolVariable, err error) {
	v, err := e.enter(ctx, brig.OpToolVariables, "")
	if err != nil {
		return nil, err
	}
	defer func() { v.leave(ctx, &err) }()
	if _, err := e.Store.GetToolSetup(ctx, v.actor.Tenant, setup); err != nil {
		return nil, err
	}
	list, err := e.Store.ToolVariables(ctx, v.actor.Tenant, setup)
	if err != nil {
		return nil, err
	}
	out := make([]*brig.ToolVariable, 0, len(list))
	for _, x := range list {
		told := x.ToolVariable
		if told.Value, err = e.unsealVariable(x); err != nil {
			return nil, err
		}
		out = append(out, &told)
	}
	return out, nil
}

// RemoveToolVariable implements brig.Service.
func (e *Engine) RemoveToolVariable(ctx context.Context, id string) (err error) {
	v, err := e.enter(ctx, brig.OpRemoveToolVariable, "", func(v *visit) { v.say(brig.DetailName, clip(id)) })
	if err != nil {
		return err
	}
	defer func() { v.leave(ctx, &err) }()
	return e.Store.DeleteToolVariable(ctx, v.actor.Tenant, id, v.outcome())
}

// resealVariables encrypts the values of all variables anew.
func (e *Engine) resealVariables(ctx context.Context) error {
	list, err := e.Store.AllToolVariables(ctx)
	if err != nil {
		return err
	}
	for _, x := range list {
		if x.SealedBy == e.Options.Keys.Primary() {
			continue
		}
		value, err := e.unsealVariable(x)
		if err != nil {
			return err
		}
		e.sealVariable(x, value)
		if err := e.Store.ChangeToolVariable(ctx, x); err != nil && brig.KindOf(err) != brig.NotFound { // removed meanwhile
			return err
		}
	}
	return nil
}
