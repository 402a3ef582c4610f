"""The words tools are found by, with the full-text index that the database keeps of them; calls counted by time."""

import django.db.models.deletion
from django.db import migrations, models

# Words come cut and folded (catalog.search): the tokenizer called ascii does no more than part them at spaces.
ON_SQLITE = [
    """CREATE VIRTUAL TABLE catalog_toolsearch USING fts5(
        name_words, other_words, content='catalog_tooltext', content_rowid='tool_id',
        tokenize='ascii', prefix='1 2 3', detail='column'
    )""",
    """CREATE TRIGGER catalog_tooltext_added AFTER INSERT ON catalog_tooltext BEGIN
        INSERT INTO catalog_toolsearch (rowid, name_words, other_words)
        VALUES (new.tool_id, new.name_words, new.other_words);
    END""",
    """CREATE TRIGGER catalog_tooltext_removed AFTER DELETE ON catalog_tooltext BEGIN
        INSERT INTO catalog_toolsearch (catalog_toolsearch, rowid, name_words, other_words)
        VALUES ('delete', old.tool_id, old.name_words, old.other_words);
    END""",
    """CREATE TRIGGER catalog_tooltext_changed AFTER UPDATE ON catalog_tooltext BEGIN
        INSERT INTO catalog_toolsearch (catalog_toolsearch, rowid, name_words, other_words)
        VALUES ('delete', old.tool_id, old.name_words, old.other_words);
        INSERT INTO catalog_toolsearch (rowid, name_words, other_words)
        VALUES (new.tool_id, new.name_words, new.other_words);
    END""",
]
# The words become lexemes as they are; PostgreSQL's own parser would cut them again, by other rules.
ON_POSTGRESQL = [
    """ALTER TABLE catalog_tooltext
        ADD COLUMN name_index tsvector GENERATED ALWAYS AS
            (array_to_tsvector(string_to_array(name_words, ' '))) STORED,
        ADD COLUMN whole_index tsvector GENERATED ALWAYS AS
            (array_to_tsvector(string_to_array(name_words, ' ') || string_to_array(other_words, ' '))) STORED""",
    "CREATE INDEX tool_search ON catalog_tooltext USING gin (whole_index)",
]


def make_index(apps, schema_editor):
    for statement in ON_SQLITE if schema_editor.connection.vendor == "sqlite" else ON_POSTGRESQL:
        schema_editor.execute(statement)


def drop_index(apps, schema_editor):
    # PostgreSQL's columns, and SQLite's triggers, go with the table.
    if schema_editor.connection.vendor == "sqlite":
        schema_editor.execute("DROP TABLE catalog_toolsearch")


class Migration(migrations.Migration):
    dependencies = [("catalog", "0003_overrides_and_rates")]
    operations = [
        migrations.RemoveIndex("call", "call_by_tool"),
        migrations.AddIndex("call", models.Index(fields=["tool_name", "created_at", "status"], name="call_by_tool")),
        migrations.CreateModel(
            "ToolText",
            fields=[
                (
                    "tool",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="text",
                        serialize=False,
                        to="catalog.tool",
                    ),
                ),
                ("name_words", models.TextField(help_text="Of its name, between spaces.")),
                ("other_words", models.TextField(help_text="Of its description and its parameters.")),
                (
                    "version",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="catalog.toolversion",
                    ),
                ),
            ],
        ),
        migrations.RunPython(make_index, drop_index),
    ]
