"""Write all pages and tables that follow from the code: `make docs`, after a change of either."""

from pathlib import Path

import command_page
import man_page
import package_map
import page_tables
from fidelity.page import page
from fidelity.summary import summary

docs = Path(__file__).parents[1]
package_map.PAGE.write_text(package_map.page(), "utf-8")
docs.joinpath("fidelity.md").write_text(page(), "utf-8")
docs.joinpath("what-you-lose.md").write_text(summary(), "utf-8")
for each in page_tables.PAGES:
    each.write_text(page_tables.page(each.read_text("utf-8")), "utf-8")
command_page.PAGE.write_text(command_page.page(), "utf-8")
man_page.PAGE.write_text(man_page.page(), "utf-8")
