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

	OpStat    = Op{"file.stat", "Files.Stat", Viewer, false}
	OpListDir = Op{"file.list", "Files.List", Viewer, false}
	OpRead    = Op{"file.read", "Files.Read", Viewer, false}
	OpWatch   = Op{"file.watch", "Files.Watch", Viewer, false}
	OpMakeDir = Op{"file.mkdir", "Files.MakeDir", Member, true}
	OpMove    = Op{"file.move", "Files.Move", Member, true}
	OpUnlink  = Op{"file.remove", "Files.Remove", Member, true}
	OpWrite   = Op{"file.write", "Files.Write", Member, true}
	OpCompose = Op{"file.compose", "Files.Compose", Member, true}

	OpStart     = Op{"process.start", "Processes.Start", Member, true}
	OpProcesses = Op{"process.list", "Processes.List", Viewer, false}
	OpAttach    = Op{"process.attach", "Processes.Attach", Viewer, false}
	OpSignal    = Op{"process.signal", "Processes.Signal", Member, true}
	// What is typed is no event of its own: the process is.
	OpInput      = Op{"process.input", "Processes.Input", Member, false}
	OpCloseInput = Op{"process.close_input", "Processes.CloseInput", Member, false}
	OpResize     = Op{"process.resize", "Processes.Resize", Member, false}
	OpSetEgress  = Op{"sandbox.egress", "SetEgress", Member, true}
	OpDial       = Op{"port.dial", "Dial", Member, false}

	// What waits is shared by all tenants, as images are.
	OpPool = Op{"pool.get", "Pool", Operator, false}

	OpCreateKey    = Op{"key.create", "CreateKey", Admin, true}
	OpKeys         = Op{"key.list", "Keys", Admin, false}
	OpRevokeKey    = Op{"key.revoke", "RevokeKey", Admin, true}
	OpCreateGrant  = Op{"grant.create", "CreateGrant", Viewer, true}
	OpCreateTenant = Op{"tenant.create", "CreateTenant", Operator, true}
	OpTenants      = Op{"tenant.list", "Tenants", Operator, false}
	OpGetTenant    = Op{"tenant.get", "GetTenant", Admin, false}
	OpUpdateTenant = Op{"tenant.update", "UpdateTenant", Operator, true}
	OpRemoveTenant = Op{"tenant.remove", "RemoveTenant", Operator, true}
	OpTenantUsage  = Op{"usage.get", "TenantUsage", Admin, false}

	OpTemplates = Op{"template.list", "Templates", Viewer, false}

	OpImages      = Op{"image.list", "Images", Viewer, false}
	OpGetImage    = Op{"image.get", "GetImage", Viewer, false}
	OpImportImage = Op{"image.import", "ImportImage", Operator, true}
	OpBuildImage  = Op{"image.build", "BuildImage", Operator, true}
	OpPullImage   = Op{"image.pull", "PullImage", Operator, true}
	OpRemoveImage = Op{"image.remove", "RemoveImage", Operator, true}

	OpPutSecret    = Op{"secret.put", "PutSecret", Admin, true}
	OpSecrets      = Op{"secret.list", "Secrets", Member, false}
	OpRemoveSecret = Op{"secret.remove", "RemoveSecret", Admin, true}
	OpRotateKey    = Op{"secret.rotate_key", "RotateKey", Operator, true}

	OpCreateWorkspace   = Op{"workspace.create", "CreateWorkspace", Member, true}
	OpWorkspaces        = Op{"workspace.list", "Workspaces", Viewer, false}
	OpRemoveWorkspace   = Op{"workspace.remove", "RemoveWorkspace", Member, true}
	OpWorkspaceVersions = Op{"workspace.versions", "WorkspaceVersions", Viewer, false}
	OpDiffWorkspace     = Op{"workspace.diff", "DiffWorkspace", Viewer, false}
	OpRestoreWorkspace  = Op{"workspace.restore", "RestoreWorkspace", Member, true}
	OpCommitWorkspace   = Op{"workspace.commit", "CommitWorkspace", Member, true}
	OpCapabilities      = Op{"capabilities.get", "Capabilities", Viewer, false}
	OpAttest            = Op{"sandbox.attest", "Attest", Member, true}

	OpAudit = Op{"audit.read", "Audit", Admin, false}
)

// Ops lists every operation.
var Ops = []Op{
	OpCreate, OpGet, OpList, OpExec, OpGetExec, OpListExecs, OpLogs, OpExtend, OpStop, OpKill,
	OpRemove, OpRun, OpGetRun,
	OpCreateContext, OpContexts, OpRunCode, OpInterrupt, OpRestart, OpRemoveContext, OpPool,
	OpStat, OpListDir, OpRead, OpWatch, OpMakeDir, OpMove, OpUnlink, OpWrite, OpCompose,
	OpStart, OpProcesses, OpAttach, OpSignal, OpInput, OpCloseInput, OpResize, OpDial, OpSetEgress,
	OpTemplates,
	OpImages, OpGetImage, OpImportImage, OpBuildImage, OpPullImage, OpRemoveImage,
	OpPutSecret, OpSecrets, OpRemoveSecret, OpRotateKey,
	OpCreateWorkspace, OpWorkspaces, OpRemoveWorkspace, OpWorkspaceVersions, OpDiffWorkspace, OpRestoreWorkspace,
	OpCommitWorkspace,
	OpCapabilities, OpAttest,
	OpAudit,
	OpCreateKey, OpKeys, OpRevokeKey, OpCreateGrant,
	OpCreateTenant, OpTenants, OpGetTenant, OpUpdateTenant, OpRemoveTenant, OpTenantUsage,
}
