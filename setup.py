"""Packages of the wheel: those of the product, and the folders of templates, static files and guides inside `config`.

Everything else about the distribution is in pyproject.toml, which cannot add folders to packages that were found.
"""

from setuptools import find_packages, setup

PRODUCT = ("approvals", "catalog", "config", "plans", "toolgate")
SHIPPED = {f"config.packaged.{folder}": folder for folder in ("templates", "static", "docs")}

setup(
    packages=[*find_packages(include=[*PRODUCT, *(f"{name}.*" for name in PRODUCT)]), *SHIPPED],
    package_dir=SHIPPED,
    package_data={
        **{name: ["**/*.js", "**/*.json", "**/*.lark", "**/*.yaml"] for name in PRODUCT},
        "plans.demo": ["documents/*", "files/**/*"],
        **{name: ["**/*"] for name in SHIPPED},
    },
)
