"""Files that the quick lane leaves out: most of their tests start a process, or wait for one."""

from tests.support.lanes import LANE

collect_ignore = (
    ["test_data_tools.py", "test_mcp_tools.py", "test_mcp_trouble.py"] if LANE == "quick" else []
)
