"""Secrets that a word, an option or a column beside them names, and texts that only look like them."""

from __future__ import annotations

import re
import time

import pytest

from benchmarks.hostile.redaction import COMMAND_NAMES, command_cost_s, cost_s
from collector_processor.rebuild.redaction import redact

NAMED = [
    ("db_password: blue horse", "blue horse"),
    ("DB_PASSWORD=hunter2", "hunter2"),
    ("{'password': 'two words'}", "two words"),
    ("password:\n  k3ttle\nuser: x", "k3ttle"),
    ("log in with password hunter-77!", "hunter-77!"),
    ("The password for the printer is Toner7x.", "Toner7x"),
    ("Das Passwort für den Drucker lautet Sonne!12.", "Sonne!12"),
    ("le mot de passe du NAS est « Rôti-12 »", "Rôti-12"),
    ("la contraseña del servidor es Frio.22", "Frio.22"),
    ("пароль от сервера: Снег_20", "Снег_20"),
    ("密码是 hunter22", "hunter22"),
    ("パスワードは sakura-77 です", "sakura-77"),
    ("비밀번호는 hana1234", "hana1234"),
    ("كلمة المرور هي Nakhl64x", "Nakhl64x"),
    ("पासवर्ड: chai@51", "chai@51"),
    ("şifresi Hamsi.61", "Hamsi.61"),
    ("user%5Bpassword%5D=Ume-b0shi", "Ume-b0shi"),
    ("auth=('bob', 'pass word')", "pass word"),
    ("headers.append(('Authorization', 'Token ab12cd34'))", "ab12cd34"),
    ("page.getByLabel('Password').fill('Mint9')", "Mint9"),
    ('{"element": "Password field", "ref": "e4", "text": "Mint9x"}', "Mint9x"),
    ("mysqli('db', 'forum', 'Zx!cob')", "Zx!cob"),
    ("sessionid=ab12cd34ef", "ab12cd34ef"),
    ('"connect.sid": "s%3Aab12cd34ef"', "ab12cd34ef"),
    ("aws configure set aws_secret_access_key wJalr", "wJalr"),
    ("setx API_TOKEN abc-123", "abc-123"),
    ("ENV DB_PASSWORD s3cr3t", "s3cr3t"),
    ("sshpass -p 'my pw' ssh x", "my pw"),
    ("redis-cli -h x -a foobared ping", "foobared"),
    ("docker login -u x -p hunter2", "hunter2"),
    ("echo 'H4rb0ur' | docker login x.io -u y --password-stdin", "H4rb0ur"),
    ("mysql -u root -pS3cret db", "S3cret"),
    ("ldapsearch -D cn=x -w Quiet9 -b y", "Quiet9"),
    ("7z x a.7z -pMarz25 -o.", "Marz25"),
    ("CREATE USER x IDENTIFIED BY 'Pr3tzel'", "Pr3tzel"),
    ("INSERT INTO t (email, password) VALUES ('x', 'dov99')", "dov99"),
    ("| user | password |\n|---|---|\n| bob | blue horse |\n", "blue horse"),
    ("name,password\nbob,hunter\n", "hunter"),
    ('name,password\nbob,"a, b"\n', "a, b"),
    ("user    passwd   on\n------  ------   --\nbob     Fjord&F  1\n", "Fjord&F"),
    ("<tr><th>User</th><th>Password</th></tr><tr><td>x</td><td>Rye&Co</td></tr>", "Rye&Co"),
    ("<Password><Value>lobby-1</Value></Password>", "lobby-1"),
    ("postgres://u:p@with@host/db", "p@with"),
    ('dsn := "app:0verpass@tcp(10.1.1.5:3306)/x"', "0verpass"),
    ('Digest username="x", response="6629fae49393a05397450978507c4ef1"', "6629fae49393a05397450978507c4ef1"),
    ("https://x/cb?code=SplxlOBe7QQY&state=x", "SplxlOBe7QQY"),
    ("private key 0x" + "ab" * 32, "ab" * 32),
    ("recovery codes:\n  a83d6-11f5c\n  77a1f-3d60e\n", "77a1f-3d60e"),
    ("my card PIN is 2649", "2649"),
    ("weather: {appid: '9de243494c0b295c'}", "9de243494c0b295c"),
    ("mnemonic: " + " ".join(["zebra", "lemon", "velvet"] * 4), "zebra lemon velvet zebra"),
    ("bot.run('MTIzNDU2Nzg5MDEyMzQ1Njc4.GabcDE.abcdefghijklmnopqrstuvwxyz0123456789ab')", "GabcDE"),
]
ODD = [
    *(
        "MYSQL_ROOT_PASSWORD=Root.pass1",
        "DB_PASSWORD=P4ss(word)9",
        "PASSWORD=$uper$ecret1",
        "password=$ecret99",
    ),
    *('password="$ecret99"', "password: Changeme!2024", "password=/Kx9/pQ2w==", "password: hunter2(x"),
    *(
        "spring.datasource.password=data.Kx9!q",
        "password: correct.horse.token",
        "client_secret=correcthorsebattery",
    ),
    *("access_key=abcdefghijklmnop", "secret_key: 4815162342", "secret: 12345678"),
]
"""Values that look like code, a path, a word or a number."""
PLAIN = [
    "--- PASS: TestLogin (0.01s)",
    "PASS: tests/unit/test_a.py::test_b",
    "token = tokens[i+1]",
    'password = row["password"]',
    "self.password = user_password",
    "The password hash uses SHA-256.",
    "The user forgot the password and opened ticket INC-20394.",
    "The backup failed because the disk was full and the service could not write any more data today",
    "The authentication code on lines 120-145 is wrong.",
    "The access code returned status 404 again",
    "admin / dashboard",
    "The form asks for name, password, and e-mail.\nAfter that, the agent opens the page, fills in",
    "SELECT id, password, email\nFROM users, accounts, orders",
    "password is required",
    "The password must have at least 8 characters.",
    "Le mot de passe est obligatoire.",
    "パスワードは8文字以上で入力してください。",
    "forgot your password?",
    '{"max_tokens": 512, "tokens": 1024, "key": "value"}',
    '{"required": ["username", "password", "email"]}',
    '{"password": {"type": "string", "minLength": 8}}',
    "password = get_password()",
    "password: str = Field(...)",
    'token = os.environ["TOKEN"]',
    "password: ${DB_PASSWORD}",
    "password = forms.CharField(widget=forms.PasswordInput)",
    "if user.password == form.password:",
    "Password:\nsudo: a password is required",
    '<input type="password" name="password" placeholder="Enter your password">',
    "password_reset_url: https://x.example/reset",
    "password_min_length: 12",
    "labels = {password: 'Password', token: 'Access token'}",
    "the key to success is patience",
    "tests pass: 12, fail: 3",
    "appId: com.example.lamp",
    "the game with appid 1091500 starts",
    "def bresenham(x0, y0):\n    points = []",
    "name,age\nbob,12\n",
    "docker run -p 8080:80 nginx",
    "order 4821 has 16 items",
    "the secret is out: nobody knows",
]


@pytest.mark.parametrize(("text", "secret"), NAMED)
def test_a_value_is_taken_for_what_the_word_beside_it_says(text: str, secret: str) -> None:
    assert secret in text.replace("%5B", "[").replace("%5D", "]")
    assert secret not in redact(text)


@pytest.mark.parametrize("text", ODD)
def test_no_value_is_too_odd_to_be_a_secret(text: str) -> None:
    assert re.split("[=:]", redact(text), maxsplit=1)[1].strip(' "') in {"[password]", "[secret]"}


@pytest.mark.parametrize("text", PLAIN)
def test_what_only_speaks_about_secrets_stays(text: str) -> None:
    assert redact(text) == text


@pytest.mark.parametrize(
    "part",
    [
        *("password,", "password,x\n", "|password|a|\n", "<tr><th>password</th></tr>", "aa  password  bb\n"),
        *(
            "insert into t (password) values ",
            "recovery codes ",
            "password a b c d e f g h ",
            "password: x\n",
        ),
        *(
            "secret=abcdef1 ",
            "login login -p ",
            "mysql ",
            "curl -u ",
            '"name":"password","value":"x",',
            'password "',
        ),
    ],
)
def test_no_text_makes_the_search_slow(part: str) -> None:
    """CPU seconds for 100 kB: 0.01 to 0.7 here; 8 where the rows of a table were read anew for each head."""
    text = part * (100_000 // len(part))
    began = time.process_time()
    redact(text)
    assert time.process_time() - began < 5


def test_the_name_of_a_command_costs_little_more_than_prose() -> None:
    """CPU time: less than prose here; 10 to 20 times as much where RE2 counted the distance to the option."""
    prose = "The agent asked for the password of the printer. " + "It was told to ask again, and did so. " * 9
    plain = min(cost_s([prose * 80]) for _ in range(3))
    assert max(min(command_cost_s(name) for _ in range(2)) for name in COMMAND_NAMES) < 5 * plain


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("mysql " + "-e x " * 30 + "-pS3cret db", "S3cret"),
        ("mysql mysql " * 100 + "-pS3cret db", "S3cret"),
        ('mysql -p"mysql -pS3cret" db', "mysql -pS3cret"),
        ("curl -u " + "a" * 300 + ":b12 x", "a" * 300 + ":b12"),
        ("net use z: \\\\nas\\x /user:bob Quiet9", "Quiet9"),
        ("net use z: \\\\nas\\x Quiet9 /user:bob", "Quiet9"),
        ("smbclient //nas/x -U bob%Quiet9", "Quiet9"),
        ("lftp -u bob,Quiet9 x", "Quiet9"),
    ],
)
def test_an_option_belongs_to_the_nearest_command(text: str, secret: str) -> None:
    assert secret not in redact(text)


@pytest.mark.parametrize(
    "text",
    ["mysql " + "and more " * 40 + "mkdir -pv x", "mysql\nrm -pv x", 'mysql -p"' + "a b " * 90 + '" x'],
)
def test_an_option_far_from_a_command_is_not_its_own(text: str) -> None:
    assert redact(text) == text


@pytest.mark.parametrize("columns", [1, 3, 165])
def test_no_table_makes_the_search_slow(columns: int) -> None:
    """4 KB of it held the interpreter for seconds."""
    text = "<table><tr>" + "<th>password</th>" * columns + "</tr><tr><td>" + " " * 3_700 + "x" * 250 + "</tr>"
    began = time.process_time()
    redact(text)
    assert time.process_time() - began < 1
