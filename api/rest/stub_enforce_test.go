package rest_test

import (
	"context"

	"github.com/brig-run/brig"
)

func (s *stub) Capabilities(context.Context) (*brig.Capabilities, error) {
	memory := brig.Enforcement{Level: brig.LevelGaps, How: "measured", Gaps: []string{"ten times a second"}, Help: "be root"}
	return &brig.Capabilities{Name: "stub", Isolation: "none", Uplinks: true, Enforces: map[brig.Area]brig.Enforcement{brig.AreaMemory: memory}}, nil
}

func (s *stub) Attest(_ context.Context, name string) (*brig.Sandbox, error) {
	s.record(name)
	box := s.sandbox(brig.Spec{Name: name, Require: brig.Requirement{brig.AreaMemory: brig.LevelGaps}})
	box.Enforcement = map[brig.Area]brig.Enforcement{
		brig.AreaMemory: {Level: brig.LevelBoundary, How: "a cgroup", Evidence: []string{"it was read back"}, At: epoch},
	}
	return box, nil
}
