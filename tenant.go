package brig

import (
	"path"
	"strings"
	"time"
)

// Tenant is who owns sandboxes, keys and what they use.
type Tenant struct {
	// Name is like a sandbox's: 1 to 63 of a-z, 0-9 and "-".
	Name  string
	Quota Quota
	// Budget is what executions of a calendar month, of UTC, may cost before an
	// alert says so. It refuses nothing. Zero is none.
	Budget   float64 `json:",omitempty"`
	Ceilings Ceilings
	Created  time.Time
}

// Ceilings bound what each sandbox of a tenant may ask for, under the
// service's own Bounds. A zero field is no further bound.
type Ceilings struct {
	Limits                      Limits
	MaxTTL, MaxLife, MaxTimeout time.Duration
	// Images are those that may be used: names, patterns with * and ? as in
	// path.Match, or digests. Empty is all.
	Images []string `json:",omitempty"`
	// DigestsOnly refuses images that are not asked for by their digest.
	DigestsOnly bool
	// Screening refuses code, beside what the service refuses of everybody's.
	Screening *Screening `json:",omitempty"`
}

// Check refuses ceilings that no request could keep.
func (c Ceilings) Check() error {
	if l := c.Limits; l.Memory < 0 || l.CPUs < 0 || l.CPUs != l.CPUs || l.Processes < 0 || l.OpenFiles < 0 || l.Disk < 0 || l.Output < 0 {
		return InvalidField("ceilings.limits", "a ceiling is negative").WithHint("leave out what is not bounded")
	}
	if c.MaxTTL < 0 || c.MaxLife < 0 || c.MaxTimeout < 0 {
		return InvalidField("ceilings", "a duration is negative").WithHint("leave out what is not bounded")
	}
	if err := c.Screening.Check("ceilings.screening"); err != nil {
		return err
	}
	for _, p := range c.Images {
		if _, err := path.Match(p, ""); err != nil || p == "" {
			return InvalidField("ceilings.images", "%q is not a pattern", Clip(p, 80)).
				WithHint(`give names, digests, or patterns such as "docker.io/library/*"`)
		}
	}
	return nil
}

// Within returns the bounds that hold for a tenant.
func (b Bounds) Within(c Ceilings) Bounds {
	lower(&b.Default.Memory, &b.Min.Memory, &b.Max.Memory, c.Limits.Memory)
	lower(&b.Default.CPUs, &b.Min.CPUs, &b.Max.CPUs, c.Limits.CPUs)
	lower(&b.Default.Processes, &b.Min.Processes, &b.Max.Processes, c.Limits.Processes)
	lower(&b.Default.OpenFiles, &b.Min.OpenFiles, &b.Max.OpenFiles, c.Limits.OpenFiles)
	lower(&b.Default.Disk, &b.Min.Disk, &b.Max.Disk, c.Limits.Disk)
	lower(&b.Default.Output, &b.Min.Output, &b.Max.Output, c.Limits.Output)
	var least time.Duration
	lower(&b.DefaultTTL, &least, &b.MaxTTL, c.MaxTTL)
	lower(&b.DefaultTimeout, &least, &b.MaxTimeout, c.MaxTimeout)
	lower(&b.MaxLife, &least, &b.MaxLife, c.MaxLife)
	return b
}

// lower brings a bound down to a ceiling, if there is one.
func lower[T int | int64 | float64 | time.Duration](def, least, most *T, ceiling T) {
	if ceiling > 0 {
		*most = min(*most, ceiling)
		*def, *least = min(*def, *most), min(*least, *most)
	}
}

// AllowsRef reports why an image may not be asked for in these words, whether
// there is one or not.
func (c Ceilings) AllowsRef(ref string) error {
	digest := strings.HasPrefix(ref, "sha256:")
	if c.DigestsOnly && !digest {
		return c.refuse("images must be given by their digest")
	}
	if !digest && !c.matches(ref) {
		return c.refuse("the image %q is not among those that this tenant may use", Clip(ref, 80))
	}
	return nil
}

// AllowsImage reports why an image may not be used. What it was called in the
// request does not matter: names are the server's own.
func (c Ceilings) AllowsImage(img *Image) error {
	if c.matches(img.Digest) {
		return nil
	}
	for _, n := range img.Names {
		if c.matches(n) {
			return nil
		}
	}
	return c.refuse("the image is not among those that this tenant may use")
}

func (c Ceilings) matches(name string) bool {
	for _, p := range c.Images {
		if ok, err := path.Match(p, name); ok && err == nil {
			return true
		}
	}
	return len(c.Images) == 0
}

func (c Ceilings) refuse(format string, args ...any) error {
	e := Errorf(PolicyBlocked, format, args...)
	e.Field = "image"
	if len(c.Images) == 0 {
		return e.WithHint("look the digest up with brig image get")
	}
	return e.WithHint("use one of: %s", Clip(strings.Join(c.Images, ", "), 80))
}

// ScopedID is a sandbox's name for whoever keeps those of several tenants:
// {tenant}:{name}:{id}. It can be used wherever a name can.
func (s *Sandbox) ScopedID() string { return s.Tenant + ":" + s.Spec.Name + ":" + string(s.ID) }

// ParseScopedID takes a scoped id apart. What has no colon is none.
func ParseScopedID(s string) (tenant, name string, id ID, ok bool) {
	tenant, rest, ok := strings.Cut(s, ":")
	if !ok {
		return "", "", "", false
	}
	name, last, ok := strings.Cut(rest, ":")
	return tenant, name, ID(last), ok && !strings.Contains(last, ":")
}
