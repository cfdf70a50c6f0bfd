package e2b

import (
	"encoding/json"
	"maps"
	"math"
	"net/http"
	"time"

	"github.com/brig-run/brig"
)

// The lease of a sandbox that was asked for without one, in seconds.
const (
	leaseV1 = 15
	leaseV2 = 300
)

// newSandbox asks for a sandbox.
type newSandbox struct {
	TemplateID string            `json:"templateID"`
	Timeout    *int64            `json:"timeout"`
	Metadata   map[string]string `json:"metadata"`
	EnvVars    map[string]string `json:"envVars"`
	// AllowInternetAccess may be true where a sandbox gets no such thing: SDKs
	// send that unasked. What is told of a sandbox says so.
	AllowInternetAccess *bool `json:"allow_internet_access"`
	AutoPause           bool  `json:"autoPause"`
	AutoResume          *struct {
		Enabled bool `json:"enabled"`
	} `json:"autoResume"`
	Network *network `json:"network"`
	IAM     *struct {
		Tokens map[string]json.RawMessage `json:"tokens"`
	} `json:"iam"`
	VolumeMounts []json.RawMessage `json:"volumeMounts"`
	// Secure is what v1 says; here all sandboxes are. What is given as mcp is
	// the client's own affair, and may hold secrets: nothing of it is kept.
	Secure *bool `json:"secure"`
}

// check refuses what there is not.
func (n *newSandbox) check() error {
	switch {
	case n.TemplateID == "":
		return brig.InvalidField("templateID", "it is required")
	case n.AutoPause:
		return errMissing("autoPause")
	case n.AutoResume != nil && n.AutoResume.Enabled:
		return errMissing("autoResume")
	case n.IAM != nil && len(n.IAM.Tokens) > 0:
		return errMissing("iam")
	case len(n.VolumeMounts) > 0:
		return errMissing("volumeMounts")
	}
	if n.Network != nil {
		if err := n.Network.check(); err != nil {
			return err
		}
	}
	return checkMetadata(n.Metadata)
}

func (d *Door) createV1(w http.ResponseWriter, r *http.Request) error { return d.create(w, r, leaseV1) }

func (d *Door) createV2(w http.ResponseWriter, r *http.Request) error { return d.create(w, r, leaseV2) }

func (d *Door) create(w http.ResponseWriter, r *http.Request, lease int64) error {
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
	if lease <= 0 {
		return brig.Errorf(brig.InvalidArgument, "Timeout must be greater than 0")
	}
	ttl, err := d.lease(lease)
	if err != nil {
		return err
	}
	t, err := d.findTemplate(r.Context(), n.TemplateID)
	if err != nil {
		return err
	}
	spec := n.spec(t, ttl)
	asked := n.Network
	if asked == nil {
		asked = &network{}
	}
	if spec.Egress, err = asked.egress(d.internet(n.AllowInternetAccess)); err != nil {
		return err
	}
	s, err := d.Service.Create(r.Context(), spec)
	if err != nil {
		if brig.AsError(err).Field == "image" {
			return errNoTemplate(n.TemplateID).Because(err)
		}
		return err
	}
	d.known.add(string(s.ID))
	d.write(w, r, http.StatusCreated, d.connected(r.Context(), s))
	return nil
}

// spec is the sandbox that is asked for, in our words.
func (n *newSandbox) spec(t template, ttl time.Duration) brig.Spec {
	labels := map[string]string{}
	maps.Copy(labels, n.Metadata)
	labels[labelDoor], labels[labelTemplate] = "true", t.name
	if n.Network != nil {
		n.Network.remember(labels)
	}
	env := map[string]string{}
	maps.Copy(env, n.EnvVars)
	env[envMark], env[envTemplate] = "true", t.name
	spec := brig.Spec{Image: t.image, Env: env, Labels: labels, TTL: ttl, FixedLease: true}
	if t.recipe != nil {
		spec.Image, spec.Template = "", t.name
	}
	return spec
}

// lease is a number of seconds as a duration, within what is allowed.
func (d *Door) lease(seconds int64) (time.Duration, error) {
	if most := d.Bounds.MaxTTL; seconds > int64(most/time.Second) {
		return 0, brig.Errorf(brig.InvalidArgument, "Timeout cannot be greater than %g hours", math.Round(100*most.Hours())/100)
	}
	return time.Duration(max(seconds, math.MinInt32)) * time.Second, nil
}
