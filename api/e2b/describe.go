package e2b

import (
	"time"

	"github.com/brig-run/brig"
)

// templateBuild describes the build of a template.
type templateBuild struct {
	BuildID     string     `json:"buildID"`
	Status      string     `json:"status"`
	CreatedAt   time.Time  `json:"createdAt"`
	UpdatedAt   time.Time  `json:"updatedAt"`
	FinishedAt  *time.Time `json:"finishedAt"`
	CPUCount    int        `json:"cpuCount"`
	MemoryMB    int64      `json:"memoryMB"`
	DiskSizeMB  int64      `json:"diskSizeMB"`
	EnvdVersion string     `json:"envdVersion"`
}

// detailedTemplate is a template with its builds.
type detailedTemplate struct {
	TemplateID    string          `json:"templateID"`
	Public        bool            `json:"public"`
	Names         []string        `json:"names"`
	Aliases       []string        `json:"aliases"`
	CreatedAt     time.Time       `json:"createdAt"`
	UpdatedAt     time.Time       `json:"updatedAt"`
	LastSpawnedAt *time.Time      `json:"lastSpawnedAt"`
	SpawnCount    int64           `json:"spawnCount"`
	Builds        []templateBuild `json:"builds"`
}

func withBuilds(l listedTemplate, builds []templateBuild) detailedTemplate {
	return detailedTemplate{l.TemplateID, l.Public, l.Names, l.Aliases, l.CreatedAt, l.UpdatedAt, l.LastSpawnedAt, l.SpawnCount, builds}
}

// describeBuilt describes a template that a tenant has built, with its newest build, which may be nil.
func describeBuilt(t *brig.BuiltTemplate, newest *brig.TemplateBuild) listedTemplate {
	l := listedTemplate{
		TemplateID: t.ID, BuildStatus: string(brig.BuildWaiting), BuildCount: int(t.Builds), Names: []string{t.Name}, Aliases: []string{t.Name},
		CreatedAt: t.Created, UpdatedAt: t.Updated, LastSpawnedAt: timeOrNil(t.LastUsed), SpawnCount: t.Uses, EnvdVersion: envdVersion,
	}
	if newest != nil {
		b := describeBuilds([]*brig.TemplateBuild{newest})[0]
		l.BuildID, l.BuildStatus = b.BuildID, b.Status
		l.CPUCount, l.MemoryMB, l.DiskSizeMB = b.CPUCount, b.MemoryMB, b.DiskSizeMB
	}
	return l
}

func describeBuilds(builds []*brig.TemplateBuild) []templateBuild {
	out := []templateBuild{}
	for _, x := range builds {
		b := templateBuild{
			BuildID: x.ID, Status: string(x.Status), CreatedAt: x.Created, UpdatedAt: x.Created, FinishedAt: timeOrNil(x.Finished),
			CPUCount: cpus(x.Limits), MemoryMB: x.Limits.Memory / brig.MiB, DiskSizeMB: x.Limits.Disk / brig.MiB, EnvdVersion: envdVersion,
		}
		if !x.Finished.IsZero() {
			b.UpdatedAt = x.Finished
		}
		out = append(out, b)
	}
	return out
}

// timeOrNil returns nil for the zero time, which is null in JSON.
func timeOrNil(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}
