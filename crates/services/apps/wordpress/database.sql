CREATE DATABASE IF NOT EXISTS wordpress;
CREATE USER IF NOT EXISTS wordpress@localhost IDENTIFIED BY 'a secret of tests';
GRANT ALL ON wordpress.* TO wordpress@localhost;
