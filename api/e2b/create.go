package e2b

import (
	"context"
	"encoding/json"
	"maps"
	"math"
	"net/http"
	"time"

	"github.com/brig-run/brig"
)

// Lifetime in seconds of a sandbox whose request has no timeout.
const (
	leaseV1 = 15
	leaseV2 = 300
)

// sandboxes creates, lists, changes and removes sandboxes.
type sandboxes struct {
	*env
	tokens    *tokens
	finder    *finder
	templates *templates
	snapshots *snapshots
}

// newSandbox is the body of a request that creates a sandbox.
type newSandbox struct {
	TemplateID string            `json:"templateID"`
	Timeout    *int64            `json:"timeout"`
	Metadata   map[string]string `json:"metadata"`
	EnvVars    map[string]string `json:"envVars"`
	// AllowInternetAccess may be true even if the sandbox gets no internet
	// access, because SDKs send it by default. The description of the sandbox
	// has the effective rules.
	AllowInternetAccess *bool `json:"allow_internet_access"`
	AutoPause           bool  `json:"autoPause"`
	AutoPauseMemory     *bool `json:"autoPauseMemory"`
	AutoResume          *struct {
		Enabled bool `json:"enabled"`
	} `json:"autoResume"`
	Network *network `json:"network"`
	IAM     *struct {
		Tokens map[string]json.RawMessage `json:"tokens"`
	} `json:"iam"`
	VolumeMounts []volumeMount `json:"volumeMounts"`
	// Secure is set by clients of API version 1. This API secures all
	// sandboxes, except the code interpreters that Options.Unsecured opens. The
	// mcp object belongs to the client and may contain secrets, so the API does
	// not store it.
	Secure *bool `json:"secure"`
}

// check returns an error if the request has unsupported options.
func (n *newSandbox) check() error {
	switch {
	case n.TemplateID == "":
		return brig.InvalidField("templateID", "it is required")
	case n.AutoResume != nil && n.AutoResume.Enabled && isFalse(n.AutoPauseMemory):
		return brig.InvalidField("autoResume", "traffic cannot resume a sandbox whose memory is not kept (autoPauseMemory)").
			WithHint("leave out autoPauseMemory, or connect to the sandbox to resume it")
	case n.IAM != nil && len(n.IAM.Tokens) > 0:
		return errUnsupported("iam")
	}
	if n.Network != nil {
		if err := n.Network.check(); err != nil {
			return err
		}
	}
	return checkMetadata(n.Metadata)
}

func (sb *sandboxes) createV1(w http.ResponseWriter, r *http.Request) error {
	return sb.create(w, r, leaseV1)
}

func (sb *sandboxes) createV2(w http.ResponseWriter, r *http.Request) error {
	return sb.create(w, r, leaseV2)
}

func (sb *sandboxes) create(w http.ResponseWriter, r *http.Request, lease int64) error {
	var n newSandbox
	if err := read(w, r, &n); err != nil {
		return err
	}
	if err := n.check(); err != nil {
		return err
	}
	if n.Timeout != nil {
		lease = *n.Timeout
	}
	ttl, err := sb.newLease(lease)
	if err != nil {
		return err
	}
	t, err := sb.templates.find(r.Context(), n.TemplateID)
	var snapshot *brig.Sandbox
	if brig.KindOf(err) == brig.NotFound {
		var findErr error
		if snapshot, findErr = sb.snapshots.find(r.Context(), n.TemplateID); findErr != nil {
			return findErr
		}
		t.id, t.name = n.TemplateID, n.TemplateID
	}
	if err != nil && snapshot == nil {
		return err
	}
	spec := n.spec(t, ttl)
	requested := n.Network
	if requested == nil {
		requested = &network{}
	}
	if spec.Egress, err = requested.egress(sb.internet(n.AllowInternetAccess)); err != nil {
		return err
	}
	if sb.Unsecured && (n.Secure == nil || !*n.Secure) {
		spec.Labels[labelOpen] = "true"
	}
	var s *brig.Sandbox
	switch {
	case snapshot != nil:
		s, err = sb.fromSnapshot(r.Context(), &n, snapshot, spec)
	case t.built != nil:
		s, err = sb.fromBuild(r.Context(), t.ref, spec)
	default:
		s, err = sb.Service.Create(r.Context(), spec)
	}
	if err != nil {
		if brig.AsError(err).Field == "image" {
			return errNoTemplate(n.TemplateID).Because(err)
		}
		return err
	}
	sb.cache.add(string(s.ID), s.Tenant)
	sb.Started(s.Tenant, 1)
	sb.write(w, r, http.StatusCreated, sb.connected(r.Context(), s))
	return nil
}

// spec converts the request to a brig.Spec.
func (n *newSandbox) spec(t template, ttl time.Duration) brig.Spec {
	labels := map[string]string{}
	maps.Copy(labels, n.Metadata)
	labels[labelAPI], labels[labelTemplate] = "true", t.id
	if t.name != t.id {
		labels[labelAlias] = t.name
	}
	if n.Network != nil {
		n.Network.storeIn(labels)
	}
	env := map[string]string{}
	maps.Copy(env, n.EnvVars)
	env[envMark], env[envTemplate] = "true", t.id
	if n.AutoResume != nil && n.AutoResume.Enabled {
		labels[labelResume] = "true"
	}
	spec := brig.Spec{
		Image: t.image, Env: env, Labels: labels, TTL: ttl, FixedLease: true,
		PausableIfSupported: true, PauseAtEnd: n.AutoPause, PauseFilesOnly: n.AutoPause && isFalse(n.AutoPauseMemory),
	}
	for _, m := range n.VolumeMounts {
		spec.Volumes = append(spec.Volumes, brig.VolumeMount{Name: m.Name, Path: m.Path})
	}
	if t.recipe != nil {
		spec.Image, spec.Template = "", t.name
	}
	return spec
}

// fromBuild creates a sandbox from a template that the tenant has built.
func (sb *sandboxes) fromBuild(ctx context.Context, ref string, spec brig.Spec) (*brig.Sandbox, error) {
	return sb.Builder.Create(ctx, ref, brig.ForkSpec{
		Labels: spec.Labels, TTL: spec.TTL, Env: spec.Env, Egress: &spec.Egress,
		AtEnd: &brig.AtEnd{Pause: spec.PauseAtEnd, FilesOnly: spec.PauseFilesOnly}, Volumes: spec.Volumes,
	})
}

// newLease is like lease, but for a new sandbox, whose lease cannot have ended.
func (sb *sandboxes) newLease(seconds int64) (time.Duration, error) {
	if seconds <= 0 {
		return 0, brig.Errorf(brig.InvalidArgument, "Timeout must be greater than 0")
	}
	return sb.lease(seconds)
}

// lease converts a number of seconds to a duration and checks that it is in the
// allowed range.
func (sb *sandboxes) lease(seconds int64) (time.Duration, error) {
	if maxTTL := sb.LimitRange.MaxTTL; seconds > int64(maxTTL/time.Second) {
		return 0, brig.Errorf(brig.InvalidArgument, "Timeout cannot be greater than %g hours", math.Round(100*maxTTL.Hours())/100)
	}
	return time.Duration(max(seconds, math.MinInt32)) * time.Second, nil
}
