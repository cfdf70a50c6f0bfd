package brig

// Op is an operation of Service, or an operation that an API implements itself (see
// KernelOps). The table below is the only list of the operations of Service.
type Op struct {
	Name    string // audit and metrics name
	Method  string // the name of the Service method; empty for an operation of an API
	Role    Role   // the minimum role
	Changes bool   // modifies state, so its intent and its outcome are audited
	Sandbox bool   // operates on one sandbox, which the call names
}

// Operations of Service.
var (
	OpCreate    = Op{"sandbox.create", "Create", Member, true, false}
	OpGet       = Op{"sandbox.get", "Get", Viewer, false, true}
	OpList      = Op{"sandbox.list", "List", Viewer, false, false}
	OpUsage     = Op{"sandbox.usage", "Usage", Viewer, false, true}
	OpExec      = Op{"sandbox.exec", "Exec", Member, true, true}
	OpGetExec   = Op{"exec.get", "GetExec", Viewer, false, true}
	OpListExecs = Op{"exec.list", "ListExecs", Viewer, false, true}
	OpLogs      = Op{"sandbox.logs", "Logs", Viewer, false, true}
	OpExtend    = Op{"sandbox.extend", "Extend", Member, true, true}
	OpStop      = Op{"sandbox.stop", "Stop", Member, true, true}
	OpKill      = Op{"sandbox.kill", "Kill", Member, true, true}
	OpRemove    = Op{"sandbox.remove", "Remove", Member, true, true}
	OpPause     = Op{"sandbox.pause", "Pause", Member, true, true}
	OpResume    = Op{"sandbox.resume", "Resume", Member, true, true}
	OpFork      = Op{"sandbox.fork", "Fork", Member, true, true}
	OpRun       = Op{"run", "Run", Member, true, false}
	OpGetRun    = Op{"run.get", "GetRun", Viewer, false, false}
	OpRuns      = Op{"run.list", "Runs", Viewer, false, false}

	OpCreateContext = Op{"context.create", "CreateContext", Member, true, true}
	OpContexts      = Op{"context.list", "Contexts", Viewer, false, true}
	OpRunCode       = Op{"context.run", "RunCode", Member, true, true}
	OpInterrupt     = Op{"context.interrupt", "InterruptContext", Member, true, true}
	OpRestart       = Op{"context.restart", "RestartContext", Member, true, true}
	OpRemoveContext = Op{"context.remove", "RemoveContext", Member, true, true}

	OpStat    = Op{"file.stat", "Files.Stat", Viewer, false, true}
	OpListDir = Op{"file.list", "Files.List", Viewer, false, true}
	OpRead    = Op{"file.read", "Files.Read", Viewer, false, true}
	OpWatch   = Op{"file.watch", "Files.Watch", Viewer, false, true}
	OpMakeDir = Op{"file.mkdir", "Files.MakeDir", Member, true, true}
	OpMove    = Op{"file.move", "Files.Move", Member, true, true}
	OpUnlink  = Op{"file.remove", "Files.Remove", Member, true, true}
	OpWrite   = Op{"file.write", "Files.Write", Member, true, true}
	OpCompose = Op{"file.compose", "Files.Compose", Member, true, true}

	OpStart     = Op{"process.start", "Processes.Start", Member, true, true}
	OpProcesses = Op{"process.list", "Processes.List", Viewer, false, true}
	OpAttach    = Op{"process.attach", "Processes.Attach", Viewer, false, true}
	OpSignal    = Op{"process.signal", "Processes.Signal", Member, true, true}
	// WriteInput is not audited, because the start of the process is.
	OpInput      = Op{"process.input", "Processes.WriteInput", Member, false, true}
	OpCloseInput = Op{"process.close_input", "Processes.CloseInput", Member, false, true}
	OpResize     = Op{"process.resize", "Processes.Resize", Member, false, true}
	OpSetEgress  = Op{"sandbox.egress", "SetEgress", Member, true, true}
	OpDial       = Op{"port.dial", "Dial", Member, false, true}

	// The pool is shared by all tenants, like images.
	OpPool = Op{"pool.get", "Pool", Operator, false, false}

	OpCreateKey   = Op{"key.create", "CreateKey", Admin, true, false}
	OpKeys        = Op{"key.list", "Keys", Admin, false, false}
	OpRevokeKey   = Op{"key.revoke", "RevokeKey", Admin, true, false}
	OpCreateGrant = Op{"grant.create", "CreateGrant", Viewer, true, false}
	// Callers manage their own sessions; only admins manage those of others.
	OpCreateSession = Op{"session.create", "CreateSession", Viewer, true, false}
	OpSessions      = Op{"session.list", "Sessions", Viewer, false, false}
	OpEndSession    = Op{"session.end", "EndSession", Viewer, true, false}

	OpCreateTenant = Op{"tenant.create", "CreateTenant", Operator, true, false}
	OpTenants      = Op{"tenant.list", "Tenants", Operator, false, false}
	OpGetTenant    = Op{"tenant.get", "GetTenant", Admin, false, false}
	OpUpdateTenant = Op{"tenant.update", "UpdateTenant", Operator, true, false}
	OpRemoveTenant = Op{"tenant.remove", "RemoveTenant", Operator, true, false}
	OpTenantUsage  = Op{"usage.get", "TenantUsage", Admin, false, false}

	OpTemplates = Op{"template.list", "Templates", Viewer, false, false}

	OpImages      = Op{"image.list", "Images", Viewer, false, false}
	OpGetImage    = Op{"image.get", "GetImage", Viewer, false, false}
	OpImportImage = Op{"image.import", "ImportImage", Operator, true, false}
	OpBuildImage  = Op{"image.build", "BuildImage", Operator, true, false}
	OpPullImage   = Op{"image.pull", "PullImage", Operator, true, false}
	OpTagImage    = Op{"image.tag", "TagImage", Operator, true, false}
	OpRemoveImage = Op{"image.remove", "RemoveImage", Operator, true, false}

	OpPutSecret    = Op{"secret.put", "PutSecret", Admin, true, false}
	OpSecrets      = Op{"secret.list", "Secrets", Member, false, false}
	OpRemoveSecret = Op{"secret.remove", "RemoveSecret", Admin, true, false}
	OpRotateKey    = Op{"secret.rotate_key", "RotateKey", Operator, true, false}

	OpRunTool            = Op{"tool.run", "RunTool", Member, true, false}
	OpPutToolSetup       = Op{"tool.setup.put", "PutToolSetup", Member, true, false}
	OpToolSetups         = Op{"tool.setup.list", "ToolSetups", Viewer, false, false}
	OpRenewToolSetup     = Op{"tool.setup.renew", "RenewToolSetup", Member, true, false}
	OpRemoveToolSetup    = Op{"tool.setup.remove", "RemoveToolSetup", Member, true, false}
	OpPutToolVariable    = Op{"tool.variable.put", "PutToolVariable", Member, true, false}
	OpChangeToolVariable = Op{"tool.variable.change", "ChangeToolVariable", Member, true, false}
	// The response contains the values. Callers that may run tools receive them
	// anyway.
	OpToolVariables      = Op{"tool.variable.list", "ToolVariables", Member, false, false}
	OpRemoveToolVariable = Op{"tool.variable.remove", "RemoveToolVariable", Member, true, false}

	OpCreateWorkspace     = Op{"workspace.create", "CreateWorkspace", Member, true, false}
	OpWorkspaces          = Op{"workspace.list", "Workspaces", Viewer, false, false}
	OpRemoveWorkspace     = Op{"workspace.remove", "RemoveWorkspace", Member, true, false}
	OpWorkspaceVersions   = Op{"workspace.versions", "WorkspaceVersions", Viewer, false, false}
	OpWorkspaceFiles      = Op{"workspace.files", "WorkspaceFiles", Viewer, false, false}
	OpReadWorkspaceFile   = Op{"workspace.read", "ReadWorkspaceFile", Viewer, false, false}
	OpDiffWorkspace       = Op{"workspace.diff", "DiffWorkspace", Viewer, false, false}
	OpRestoreWorkspace    = Op{"workspace.restore", "RestoreWorkspace", Member, true, false}
	OpCommitWorkspace     = Op{"workspace.commit", "CommitWorkspace", Member, true, true}
	OpCreateVolume        = Op{"volume.create", "CreateVolume", Member, true, false}
	OpVolumes             = Op{"volume.list", "Volumes", Viewer, false, false}
	OpGetVolume           = Op{"volume.get", "GetVolume", Viewer, false, false}
	OpRemoveVolume        = Op{"volume.remove", "RemoveVolume", Member, true, false}
	OpStatVolume          = Op{"volume.file.stat", "VolumeFiles.Stat", Viewer, false, false}
	OpListVolume          = Op{"volume.file.list", "VolumeFiles.List", Viewer, false, false}
	OpReadVolume          = Op{"volume.file.read", "VolumeFiles.Read", Viewer, false, false}
	OpMakeVolumeDir       = Op{"volume.file.mkdir", "VolumeFiles.MakeDir", Member, true, false}
	OpWriteVolume         = Op{"volume.file.write", "VolumeFiles.Write", Member, true, false}
	OpSetVolumeAttributes = Op{"volume.file.set", "VolumeFiles.SetAttributes", Member, true, false}
	OpUnlinkVolume        = Op{"volume.file.remove", "VolumeFiles.Remove", Member, true, false}
	OpLifecycle           = Op{"event.list", "Lifecycle", Viewer, false, false}
	OpCreateWebhook       = Op{"webhook.create", "CreateWebhook", Member, true, false}
	OpWebhooks            = Op{"webhook.list", "Webhooks", Viewer, false, false}
	OpGetWebhook          = Op{"webhook.get", "GetWebhook", Viewer, false, false}
	OpUpdateWebhook       = Op{"webhook.update", "UpdateWebhook", Member, true, false}
	OpRemoveWebhook       = Op{"webhook.remove", "RemoveWebhook", Member, true, false}
	OpDeliveries          = Op{"webhook.deliveries", "Deliveries", Viewer, false, false}
	OpReplayWebhook       = Op{"webhook.replay", "ReplayWebhook", Member, true, false}

	OpCapabilities = Op{"capabilities.get", "Capabilities", Viewer, false, false}
	OpAttest       = Op{"sandbox.attest", "Attest", Member, true, true}

	OpProviders         = Op{"provider.list", "Providers", Operator, false, false}
	OpConfigureProvider = Op{"provider.configure", "ConfigureProvider", Operator, true, false}
	OpTestProvider      = Op{"provider.test", "TestProvider", Operator, true, false}
	OpActivateProvider  = Op{"provider.activate", "ActivateProvider", Operator, true, false}
	OpRemoveProvider    = Op{"provider.remove", "RemoveProvider", Operator, true, false}
	OpRouting           = Op{"routing.get", "Routing", Operator, false, false}
	OpSetRouting        = Op{"routing.set", "SetRouting", Operator, true, false}
	OpAlerts            = Op{"alert.list", "Alerts", Operator, false, false}

	OpAudit = Op{"audit.read", "Audit", Admin, false, false}
)

// Ops lists every operation.
var Ops = []Op{
	OpCreate, OpGet, OpList, OpUsage, OpExec, OpGetExec, OpListExecs, OpLogs, OpExtend, OpStop, OpKill,
	OpRemove, OpPause, OpResume, OpFork, OpRun, OpGetRun, OpRuns,
	OpCreateContext, OpContexts, OpRunCode, OpInterrupt, OpRestart, OpRemoveContext, OpPool,
	OpStat, OpListDir, OpRead, OpWatch, OpMakeDir, OpMove, OpUnlink, OpWrite, OpCompose,
	OpStart, OpProcesses, OpAttach, OpSignal, OpInput, OpCloseInput, OpResize, OpDial, OpSetEgress,
	OpTemplates,
	OpImages, OpGetImage, OpImportImage, OpBuildImage, OpPullImage, OpTagImage, OpRemoveImage,
	OpPutSecret, OpSecrets, OpRemoveSecret, OpRotateKey,
	OpRunTool, OpPutToolSetup, OpToolSetups, OpRenewToolSetup, OpRemoveToolSetup,
	OpPutToolVariable, OpChangeToolVariable, OpToolVariables, OpRemoveToolVariable,
	OpCreateWorkspace, OpWorkspaces, OpRemoveWorkspace, OpWorkspaceVersions, OpWorkspaceFiles, OpReadWorkspaceFile, OpDiffWorkspace, OpRestoreWorkspace,
	OpCommitWorkspace,
	OpCreateVolume, OpVolumes, OpGetVolume, OpRemoveVolume, OpStatVolume, OpListVolume, OpReadVolume,
	OpMakeVolumeDir, OpWriteVolume, OpSetVolumeAttributes, OpUnlinkVolume,
	OpLifecycle, OpCreateWebhook, OpWebhooks, OpGetWebhook, OpUpdateWebhook, OpRemoveWebhook, OpDeliveries, OpReplayWebhook,
	OpCapabilities, OpAttest,
	OpProviders, OpConfigureProvider, OpTestProvider, OpActivateProvider, OpRemoveProvider, OpRouting, OpSetRouting,
	OpAlerts, OpAudit,
	OpCreateKey, OpKeys, OpRevokeKey, OpCreateGrant, OpCreateSession, OpSessions, OpEndSession,
	OpCreateTenant, OpTenants, OpGetTenant, OpUpdateTenant, OpRemoveTenant, OpTenantUsage,
}

// Operations on objects that an API manages itself, without a method of Service:
// ephemeral kernels, whose code Run runs. The API requests admission of each call
// from the engine (Engine.Authorize), so that the same rules and the same audit log
// apply. The scope "run" includes these operations.
var (
	OpCreateKernel    = Op{"run.kernel.create", "", Member, true, false}
	OpKernels         = Op{"run.kernel.list", "", Viewer, false, false}
	OpGetKernel       = Op{"run.kernel.get", "", Viewer, false, false}
	OpOpenKernel      = Op{"run.kernel.open", "", Member, false, false}
	OpInterruptKernel = Op{"run.kernel.interrupt", "", Member, true, false}
	OpRestartKernel   = Op{"run.kernel.restart", "", Member, true, false}
	OpRemoveKernel    = Op{"run.kernel.remove", "", Member, true, false}
)

// KernelOps lists the operations above, which have no Service method.
var KernelOps = []Op{OpCreateKernel, OpKernels, OpGetKernel, OpOpenKernel, OpInterruptKernel, OpRestartKernel, OpRemoveKernel}

// Operations on the templates that tenants build (see TemplateStore). Like those on kernels, they
// have no method of Service.
var (
	OpRequestBuild   = Op{"template.build.request", "", Member, true, false}
	OpStartBuild     = Op{"template.build.start", "", Member, true, false}
	OpGetBuild       = Op{"template.build.get", "", Viewer, false, false}
	OpUploadFiles    = Op{"template.upload", "", Member, true, false}
	OpGetTemplate    = Op{"template.get", "", Viewer, false, false}
	OpTagTemplate    = Op{"template.tag", "", Member, true, false}
	OpUntagTemplate  = Op{"template.untag", "", Member, true, false}
	OpRemoveTemplate = Op{"template.remove", "", Member, true, false}
)

// TemplateOps lists the operations above.
var TemplateOps = []Op{OpRequestBuild, OpStartBuild, OpGetBuild, OpUploadFiles, OpGetTemplate, OpTagTemplate, OpUntagTemplate, OpRemoveTemplate}
