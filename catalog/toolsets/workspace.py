"""Workspace files: list, read and search safely; write and delete with a person's approval."""

from typing import Annotated, Any

from pydantic import Field

from catalog.core.workspace_files import FileState, Filesystem
from catalog.errors import FilesystemError, ToolError
from catalog.text.diff import HunkedDiff
from catalog.tools import Preview, ToolContext, ToolResult, tool

FilePath = Annotated[str, Field(description="Path of the file, relative to the workspace", max_length=1024)]
FolderPath = Annotated[
    str, Field(description="Folder, relative to the workspace; '.' is the workspace", max_length=1024)
]
SearchText = Annotated[str, Field(description="Text to look for; letter case is ignored", max_length=200)]
Content = Annotated[str, Field(description="The whole new text of the file")]
Original = Annotated[str, Field(description="The whole text of the file as it was read; empty for a new file")]
Description = Annotated[str, Field(description="What the edit does and why", min_length=1, max_length=1000)]
Recursive = Annotated[bool, Field(description="Also list what lies in the folders inside")]


@tool(categories=["filesystem"], retry_safe=True)
def list_files(path: FolderPath = ".", *, recursive: Recursive = False, context: ToolContext) -> list[dict[str, Any]]:
    """List the files and folders of a workspace folder with their sizes in bytes."""
    entries = _workspace(context).list(path, recursive=recursive)
    return [{"path": entry.path, "kind": entry.kind, "size": entry.size} for entry in entries]


@tool(categories=["filesystem"], retry_safe=True)
def read_file(path: FilePath, *, context: ToolContext) -> dict[str, Any]:
    """Read one UTF-8 text file of the workspace, with the token of the state it was read in."""
    seen = _workspace(context).look(path)
    if seen.data is None:
        raise FilesystemError(f"There is no {path!r} in the workspace. List the files to see which exist.")
    text = _decode_text(seen.data)
    if text is None:
        raise FilesystemError(f"{path!r} is not UTF-8 text, so it cannot be read.")
    return {"path": path, "text": text, "size": len(seen.data), "state_token": seen.token}


@tool(categories=["filesystem", "search"], retry_safe=True)
def search_files(text: SearchText, path: FolderPath = ".", *, context: ToolContext) -> list[dict[str, Any]]:
    """Find the lines that contain a text in the files below a workspace folder; files with keys are left out."""
    matches = _workspace(context).search(text, path)
    return [{"path": match.path, "line": match.line, "text": match.text} for match in matches]


@tool(safety_level="dangerous", categories=["filesystem"], reversibility="restorable")
def write_file(path: FilePath, content: Content, *, context: ToolContext) -> ToolResult[dict[str, Any]]:
    """Write content to a file of the workspace, replacing it if it exists."""
    token = _workspace(context).write_text(path, content, expect=context.target_state)
    size = len(content.encode())
    written = {"path": path, "size": size, "state_token": token}
    return ToolResult.ok(written, message=f"Wrote {size:,} bytes to {path}.")


@write_file.preview
def _(path: str, content: str, *, context: ToolContext) -> Preview:
    seen = _workspace(context).look(path)
    verb = "Create" if seen.data is None else "Replace"
    return Preview(f"{verb} {path}", "diff", *_text_before(seen.data), after=content, state_token=seen.token)


@tool(safety_level="dangerous", categories=["filesystem"])
def delete_file(path: FilePath, *, context: ToolContext) -> ToolResult[dict[str, Any]]:
    """Delete one file of the workspace."""
    _workspace(context).delete(path, expect=context.target_state)
    return ToolResult.ok({"path": path}, message=f"Deleted {path}.")


@delete_file.preview
def _(path: str, *, context: ToolContext) -> Preview:
    seen = _workspace(context).look(path)
    if seen.data is None:
        raise FilesystemError(f"There is no {path!r} in the workspace to delete.")
    return Preview(f"Delete {path}", "diff", *_text_before(seen.data), state_token=seen.token)


@tool(
    safety_level="dangerous",
    categories=["filesystem"],
    reversibility="restorable",
    hunks="modified",
    when_rejected=(
        "REJECTED: the changes to {path} were not applied. STOP: Do NOT retry or propose alternative changes to it "
        "unless the user asks for them."
    ),
)
def propose_file_edit(
    path: FilePath, original: Original, modified: Content, description: Description, *, context: ToolContext
) -> ToolResult[dict[str, Any]]:
    """Propose an edit of a file of the workspace; a person reviews it hunk by hunk before it is applied."""
    seen = _check_original(path, original, modified, context)
    token = _workspace(context).write_text(path, modified, expect=context.target_state or seen.token)
    applied = {"path": path, "hunks": len(HunkedDiff(original, modified)), "state_token": token}
    return ToolResult.ok(applied, message=f"✓ Changes accepted and applied to {path}")


@propose_file_edit.preview
def _(path: str, original: str, modified: str, description: str, *, context: ToolContext) -> Preview:
    seen = _check_original(path, original, modified, context)
    before = None if seen.data is None else original
    rows = tuple(HunkedDiff(before, modified).rows)
    return Preview(f"Edit {path}", "diff", before, modified, rows=rows, state_token=seen.token)


def _check_original(path: str, original: str, modified: str, context: ToolContext) -> FileState:
    """Return the file's current state. Raises ToolError unless it equals the original of the edit."""
    seen = _workspace(context).look(path)
    if original == modified:
        raise ToolError(f"The edit of {path} changes nothing: `modified` equals `original`.")
    if (seen.data or b"") != original.encode():
        raise ToolError(
            f"`original` differs from the current content of {path}, so nothing was "
            "changed. Read the file and propose the edit again."
        )
    return seen


def _workspace(context: ToolContext) -> Filesystem:
    if context.filesystem is None:
        raise ToolError("This call has no workspace.")
    return context.filesystem


def _text_before(data: bytes | None) -> tuple[str | None]:
    """Return the old text for a diff, as a tuple; bytes that are not text are replaced by a description."""
    if data is None:
        return (None,)
    text = _decode_text(data)
    return (f"[{len(data):,} bytes that are not UTF-8 text]\n" if text is None else text,)


def _decode_text(data: bytes) -> str | None:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None
