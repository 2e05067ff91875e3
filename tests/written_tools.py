"""Writing a tool through its operation, as agents and clients do."""

from toolkiln.kiln import Kiln
from toolkiln.model.admission import AdmissionResult, ToolDraft
from toolkiln.operations import tool_files
from toolkiln.security.sessions import LOCAL_OPERATOR, SessionToken


async def write_tool(
    kiln: Kiln, draft: ToolDraft, session: SessionToken = LOCAL_OPERATOR
) -> AdmissionResult:
    """Write a draft for a caller: it is admitted, or becomes a proposal."""
    code = draft.code if isinstance(draft.code, str) else draft.code.decode()
    request = tool_files.WriteFile(
        name=draft.name,
        code=code,
        description=draft.description,
        overwrite=draft.overwrite,
        base=draft.base,
        folder=draft.folder,
    )
    return await kiln.run_operation(tool_files.write_file, request, session)
