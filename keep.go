package brig

// Keep bounds the stored records of ended objects, so that no caller can fill
// the server's disk with them. The newest records of each kind are kept. A zero
// field means the value in DefaultKeep.
type Keep struct {
	// Executions is the number of ended executions that are kept for a sandbox.
	// Outputs is the number of those whose output is kept if it exceeds a few
	// kilobytes. For the other executions, only the size of the output is kept.
	Executions, Outputs int
	// Runs is the number of outcomes of runs that are kept for a tenant. Ended
	// is the number of ended sandboxes, each with its log.
	Runs, Ended int
	// Bytes bounds the storage of a tenant's executions and outcomes, with their
	// outputs and artifacts. The oldest are deleted first. Running executions count
	// toward the bound, but are not deleted.
	Bytes int64
}

// DefaultKeep returns the defaults of a server.
func DefaultKeep() Keep {
	return Keep{Executions: 1000, Outputs: 100, Runs: 1000, Ended: 100, Bytes: 256 * MiB}
}

// OrDefault returns k with the value of DefaultKeep for every zero field.
func (k Keep) OrDefault() Keep {
	d := DefaultKeep()
	setDefault(&k.Executions, d.Executions)
	setDefault(&k.Outputs, d.Outputs)
	setDefault(&k.Runs, d.Runs)
	setDefault(&k.Ended, d.Ended)
	setDefault(&k.Bytes, d.Bytes)
	return k
}

func setDefault[T int | int64](v *T, def T) {
	if *v <= 0 {
		*v = def
	}
}

// Within returns the bounds for a tenant with this quota: Bytes is the quota for
// outputs, if set, and never exceeds the storage quota.
func (k Keep) Within(q Quota) Keep {
	if q.Outputs > 0 {
		k.Bytes = q.Outputs
	}
	if q.Storage > 0 {
		k.Bytes = min(k.Bytes, q.Storage)
	}
	return k
}
