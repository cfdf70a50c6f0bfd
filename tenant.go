package brig

import (
	"path"
	"strings"
	"time"
)

// Tenant is an owner of sandboxes, keys and usage.
type Tenant struct {
	// Name has the same form as the name of a sandbox: 1 to 63 of a-z, 0-9 and "-".
	Name  string
	Quota Quota
	// Budget is the cost per calendar month (UTC) above which an alert fires. It
	// does not block calls. Zero means no budget.
	Budget   float64 `json:",omitempty"`
	Ceilings Ceilings
	Created  time.Time
	// Rev increases with every change. UpdateTenant rejects a change that is
	// based on another revision (see IsConflict); 0 skips the check.
	Rev int64 `json:",omitempty"`
}

// Ceilings bound each sandbox of a tenant, within the LimitRange of the service. A
// zero field adds no bound.
type Ceilings struct {
	Limits                                Limits
	MaxTTL, MaxLife, MaxPause, MaxTimeout time.Duration
	// Images are the allowed images: names, patterns with * and ? as in path.Match,
	// or digests. An empty list allows all images.
	Images []string `json:",omitempty"`
	// DigestsOnly rejects images that are not requested by digest.
	DigestsOnly bool
	// Screening holds rules that reject code, in addition to the server's own
	// rules.
	Screening *Screening `json:",omitempty"`
}

// Check returns an error for invalid ceilings.
func (c Ceilings) Check() error {
	if l := c.Limits; l.Memory < 0 || l.CPUs < 0 || l.CPUs != l.CPUs || l.Processes < 0 || l.OpenFiles < 0 || l.Disk < 0 || l.Output < 0 {
		return InvalidField("ceilings.limits", "a ceiling is negative").WithHint("leave out fields without a limit")
	}
	if c.MaxTTL < 0 || c.MaxLife < 0 || c.MaxPause < 0 || c.MaxTimeout < 0 {
		return InvalidField("ceilings", "a duration is negative").WithHint("leave out fields without a limit")
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

// Within returns the limit range of a tenant with these ceilings.
func (b LimitRange) Within(c Ceilings) LimitRange {
	capBound(&b.Default.Memory, &b.Min.Memory, &b.Max.Memory, c.Limits.Memory)
	capBound(&b.Default.CPUs, &b.Min.CPUs, &b.Max.CPUs, c.Limits.CPUs)
	capBound(&b.Default.Processes, &b.Min.Processes, &b.Max.Processes, c.Limits.Processes)
	capBound(&b.Default.OpenFiles, &b.Min.OpenFiles, &b.Max.OpenFiles, c.Limits.OpenFiles)
	capBound(&b.Default.Disk, &b.Min.Disk, &b.Max.Disk, c.Limits.Disk)
	capBound(&b.Default.Output, &b.Min.Output, &b.Max.Output, c.Limits.Output)
	var floor time.Duration
	capBound(&b.DefaultTTL, &floor, &b.MaxTTL, c.MaxTTL)
	capBound(&b.DefaultTimeout, &floor, &b.MaxTimeout, c.MaxTimeout)
	capBound(&b.MaxLife, &floor, &b.MaxLife, c.MaxLife)
	capBound(&b.MaxPause, &floor, &b.MaxPause, c.MaxPause)
	return b
}

// capBound limits a bound to a ceiling, unless the ceiling is zero.
func capBound[T int | int64 | float64 | time.Duration](def, low, high *T, ceiling T) {
	if ceiling > 0 {
		*high = min(*high, ceiling)
		*def, *low = min(*def, *high), min(*low, *high)
	}
}

// CheckRef returns an error if an image may not be requested by ref,
// regardless of whether the image exists.
func (c Ceilings) CheckRef(ref string) error {
	digest := strings.HasPrefix(ref, "sha256:")
	if c.DigestsOnly && !digest {
		return c.refuse("images must be given by their digest")
	}
	if !digest && !c.matches(ref) {
		return c.refuse("the image %q is not among those that this tenant may use", Clip(ref, 80))
	}
	return nil
}

// CheckImage returns an error if the image may not be used. It ignores the name in
// the request and matches the image's digest and the names that the server has
// assigned to it.
func (c Ceilings) CheckImage(img *Image) error {
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

// ScopedID returns a sandbox's name for clients that handle several tenants:
// {tenant}:{name}:{id}. Every call that accepts a name also accepts a scoped
// ID.
func (s *Sandbox) ScopedID() string { return s.Tenant + ":" + s.Spec.Name + ":" + string(s.ID) }

// ParseScopedID splits a scoped ID. It returns false for a string without a
// colon.
func ParseScopedID(s string) (tenant, name string, id ID, ok bool) {
	tenant, rest, ok := strings.Cut(s, ":")
	if !ok {
		return "", "", "", false
	}
	name, last, ok := strings.Cut(rest, ":")
	return tenant, name, ID(last), ok && !strings.Contains(last, ":")
}
