package brig

// Operations on what a door keeps for tenants by itself, and no method of
// Service is about: ephemeral kernels, whose code is run by Run. The door asks
// the engine to let each call in (Engine.Visit), so that the same rules hold for
// it, and it is in the same audit log. A scope of "run" has them.
var (
	OpCreateKernel    = Op{"run.kernel.create", "", Member, true, false}
	OpKernels         = Op{"run.kernel.list", "", Viewer, false, false}
	OpGetKernel       = Op{"run.kernel.get", "", Viewer, false, false}
	OpOpenKernel      = Op{"run.kernel.open", "", Member, false, false}
	OpInterruptKernel = Op{"run.kernel.interrupt", "", Member, true, false}
	OpRestartKernel   = Op{"run.kernel.restart", "", Member, true, false}
	OpRemoveKernel    = Op{"run.kernel.remove", "", Member, true, false}
)

// DoorOps lists them.
var DoorOps = []Op{OpCreateKernel, OpKernels, OpGetKernel, OpOpenKernel, OpInterruptKernel, OpRestartKernel, OpRemoveKernel}
