"""A command as it would be typed, without a process of its own."""

from typer.testing import CliRunner, Result

from bcnn.cli.app import app


def run(*words: object, code: int = 0) -> Result:
    """Run `bcnn WORDS`, which must end with `code`; what it does not catch is raised here."""
    result = CliRunner().invoke(app, [str(word) for word in words])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result
