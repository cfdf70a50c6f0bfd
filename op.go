package brig

// Op is one operation of Service. The table below is the only list of them:
// who may call it and what the audit log calls it hang off a row.
type Op struct {
	Name    string // audit and metrics name
	Method  string // name of the Service method
	Role    Role   // the weakest role that may call it
	Changes bool   // changes something: its intent is audited, then its outcome
}

// The operations.
var (
	OpCreate    = Op{"sandbox.create", "Create", Member, true}
	OpGet       = Op{"sandbox.get", "Get", Viewer, false}
	OpList      = Op{"sandbox.list", "List", Viewer, false}
	OpExec      = Op{"sandbox.exec", "Exec", Member, true}
	OpGetExec   = Op{"exec.get", "GetExec", Viewer, false}
	OpListExecs = Op{"exec.list", "ListExecs", Viewer, false}
	OpLogs      = Op{"sandbox.logs", "Logs", Viewer, false}
	OpExtend    = Op{"sandbox.extend", "Extend", Member, true}
	OpStop      = Op{"sandbox.stop", "Stop", Member, true}
	OpKill      = Op{"sandbox.kill", "Kill", Member, true}
	OpRemove    = Op{"sandbox.remove", "Remove", Member, true}
	OpRun       = Op{"run", "Run", Member, true}
	OpGetRun    = Op{"run.get", "GetRun", Viewer, false}

	OpCreateContext = Op{"context.create", "CreateContext", Member, true}
	OpContexts      = Op{"context.list", "Contexts", Viewer, false}
	OpRunCode       = Op{"context.run", "RunCode", Member, true}
	OpInterrupt     = Op{"context.interrupt", "InterruptContext", Member, true}
	OpRestart       = Op{"context.restart", "RestartContext", Member, true}
	OpRemoveContext = Op{"context.remove", "RemoveContext", Member, true}

	OpPool = Op{"pool.get", "Pool", Admin, false}

	OpImages      = Op{"image.list", "Images", Viewer, false}
	OpGetImage    = Op{"image.get", "GetImage", Viewer, false}
	OpImportImage = Op{"image.import", "ImportImage", Admin, true}
	OpBuildImage  = Op{"image.build", "BuildImage", Admin, true}
	OpRemoveImage = Op{"image.remove", "RemoveImage", Admin, true}
)

// Ops lists every operation.
var Ops = []Op{
	OpCreate, OpGet, OpList, OpExec, OpGetExec, OpListExecs, OpLogs, OpExtend, OpStop, OpKill,
	OpRemove, OpRun, OpGetRun,
	OpCreateContext, OpContexts, OpRunCode, OpInterrupt, OpRestart, OpRemoveContext, OpPool,
	OpImages, OpGetImage, OpImportImage, OpBuildImage, OpRemoveImage,
}
